"""The description of a dataset: `_meta/manifest.json`, and `_SUCCESS`, which is written last.

`_SUCCESS` holds the manifest's checksum and the manifest those of the shards, so one small file
proves that all are whole. JSON is written with sorted keys: the same dataset gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from recordmill.records.shards import DEFAULT_TEMPLATE, ShardName

MANIFEST_PATH = "_meta/manifest.json"
STATISTICS_PATH = "_meta/statistics.json"
STATISTICS_OF_ALL = ("inputs", "warnings")  # in that file beside the splits, which it is keyed by
REJECTED_PATH = "_meta/rejected"
SUCCESS_PATH = "_SUCCESS"
FORMAT_VERSION = 1
DEFAULT_VERSION = "1.0.0"


def to_json(content: Any) -> bytes:
    """Returns stable, readable JSON."""
    return (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One finished shard.

    Attributes:
      split, index, count: its name.
      records: the examples in it.
      file_bytes: the size of the file; `record_bytes` before compression, framing included.
      crc32c: of the file's bytes.
      template: of its path; see `recordmill.records.shards`.
    """

    split: str
    index: int
    count: int
    records: int
    file_bytes: int
    record_bytes: int
    crc32c: int
    template: str = DEFAULT_TEMPLATE

    @property
    def name(self) -> ShardName:
        """The shard's name."""
        return ShardName(self.split, self.index, self.count, self.template)


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is needed to read, verify, overwrite or make a dataset again.

    Attributes:
      name: of the dataset, for TFDS.
      config: the resolved configuration of the job.
      fingerprint: of configuration, input listing and everything else that decides the bytes.
      features: `Schema.to_json`.
      compression: "", "GZIP" or "ZLIB".
      versions: of recordmill and of the libraries whose results are in the bytes.
      sources: the input files with sizes, or their number and a checksum where there are many.
      counts: of documents and examples: read = written + rejected + filtered.
      files: path, relative to the dataset, -> crc32c of every file beside shards, manifest and
        `_SUCCESS`.
      shards: in order of name.
      version: of the dataset, for TFDS.
      shard_template: of the shards' paths.
    """

    name: str
    config: dict[str, Any]
    fingerprint: str
    features: list[dict[str, Any]]
    compression: str
    versions: dict[str, str]
    sources: dict[str, Any]
    counts: dict[str, Any]
    files: dict[str, int]
    shards: list[ShardInfo] = field(default_factory=list)
    format_version: int = FORMAT_VERSION
    version: str = DEFAULT_VERSION
    shard_template: str = DEFAULT_TEMPLATE

    def to_bytes(self) -> bytes:
        """Returns the bytes of `manifest.json`; version and template only where they are not the
        usual ones, so that earlier releases read the file."""
        content = asdict(self)
        for shard in content["shards"]:
            del shard["template"]
        for name, usual in (("version", DEFAULT_VERSION), ("shard_template", DEFAULT_TEMPLATE)):
            if content[name] == usual:
                del content[name]
        return to_json(content)

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Reads `manifest.json`.

        Raises:
          ValueError: the bytes are no manifest, or one of a later release.
        """
        content = json.loads(data)
        if not isinstance(content, dict) or "format_version" not in content:
            raise ValueError("not a recordmill manifest")
        if content["format_version"] > FORMAT_VERSION:
            raise ValueError(
                f"written by a later recordmill (format {content['format_version']}, this one "
                f"reads {FORMAT_VERSION}); upgrade recordmill"
            )
        template = content.get("shard_template", DEFAULT_TEMPLATE)
        shards = [ShardInfo(**shard, template=template) for shard in content.pop("shards")]
        return cls(**content, shards=shards)

    @property
    def paths(self) -> list[str]:
        """Every file of the dataset but the manifest and `_SUCCESS`, in order of name."""
        return sorted([*self.files, *(shard.name.path for shard in self.shards)])

    def split_shards(self) -> dict[str, list[ShardInfo]]:
        """Returns the shards of each split, in order."""
        splits: dict[str, list[ShardInfo]] = {}
        for shard in sorted(self.shards, key=lambda shard: shard.name):
            splits.setdefault(shard.split, []).append(shard)
        return splits


def success_bytes(manifest: bytes) -> bytes:
    """Returns the content of `_SUCCESS` for the bytes of a manifest."""
    return to_json({"manifest_blake2b": hashlib.blake2b(manifest, digest_size=16).hexdigest()})


def check_success(success: bytes, manifest: bytes) -> bool:
    """Returns whether `_SUCCESS` has the checksum of these bytes of the manifest."""
    return success == success_bytes(manifest)
