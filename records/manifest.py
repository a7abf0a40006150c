"""The description of a dataset: `_meta/manifest.json`, and `_SUCCESS`, which is written last.

`_SUCCESS` holds the manifest's checksum and the manifest those of the shards, so one small file
proves that all are whole. JSON is written with sorted keys: the same dataset gives the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict, replace

from recordmill.records.inside import is_inside
from recordmill.records.shards import DEFAULT_TEMPLATE, ShardName
from recordmill.records.state import Count, FormatError, Uint32, convert, decode, encode

MANIFEST_PATH = "_meta/manifest.json"
STATISTICS_PATH = "_meta/statistics.json"
STATISTICS_OF_ALL = ("inputs", "warnings")  # in that file beside the splits, which it is keyed by
REJECTED_PATH = "_meta/rejected"
DROPPED_PATH = "_meta/dropped"
CONFIG_PATH = "_meta/config.yaml"
SUCCESS_PATH = "_SUCCESS"
RUN_PATH = "_meta/run.json"
REPORT_PATH = "_meta/report.html"
# Of the run, not of its result: they differ where all bytes are the same, so no manifest has them.
RUN_PATHS = (RUN_PATH, REPORT_PATH)
FORMAT_VERSION = 1
# Of a dataset whose shards lay where they are before: earlier releases would delete them with it.
IN_PLACE_VERSION = 2
IN_PLACE_PATH = "_meta/in_place.txt"  # says so where the manifest is damaged or lost
DEFAULT_VERSION = "1.0.0"

Compression = Annotated[str, msgspec.Meta(pattern="^(GZIP|ZLIB)?$")]


class ShardInfo(msgspec.Struct, frozen=True):
    """One finished shard.

    Attributes:
      split, index, count: its name.
      records: the examples in it.
      file_bytes: the size of the file; `record_bytes` before compression, framing included.
      crc32c: of the file's bytes.
      template: of its path; see `recordmill.records.shards`.
      file: its path, relative to the dataset, where it lay there before; "" for one that we wrote.
    """

    split: str
    index: Count
    count: Count
    records: Count
    file_bytes: Count
    record_bytes: Count
    crc32c: Uint32
    template: str = DEFAULT_TEMPLATE
    file: str = ""

    @property
    def name(self) -> ShardName:
        """The shard's name."""
        return ShardName(self.split, self.index, self.count, self.template, self.file)


class Manifest(msgspec.Struct, frozen=True):
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
    compression: Compression
    versions: dict[str, str]
    sources: dict[str, Any]
    counts: dict[str, Any]
    files: dict[str, Uint32]
    shards: list[ShardInfo] = []
    format_version: int = FORMAT_VERSION
    version: str = DEFAULT_VERSION
    shard_template: str = DEFAULT_TEMPLATE

    def to_bytes(self) -> bytes:
        """Returns the bytes of `manifest.json`; version and template only where they are not the
        usual ones, so that earlier releases read the file."""
        content = asdict(self)
        content["shards"] = [
            {k: v for k, v in asdict(s).items() if k != "template" and (k != "file" or v)}
            for s in self.shards
        ]
        for name, usual in (("version", DEFAULT_VERSION), ("shard_template", DEFAULT_TEMPLATE)):
            if content[name] == usual:
                del content[name]
        return encode(content)

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Reads `manifest.json`.

        Raises:
          FormatError: the bytes are no manifest, or one of a later release; a ValueError.
        """
        content: Any = decode(data, object)
        if not isinstance(content, dict) or "format_version" not in content:
            raise FormatError("not a recordmill manifest")
        release = content["format_version"]
        if type(release) is not int or release < 1:
            raise FormatError(f"format_version must be {FORMAT_VERSION}, and is {release!r:.40}")
        if release > IN_PLACE_VERSION:
            raise FormatError(
                f"written by a later recordmill (format {release}, this one reads "
                f"{IN_PLACE_VERSION}); upgrade recordmill"
            )
        if "shards" not in content:
            raise FormatError("shards is missing")
        manifest = convert(content, cls)
        template = manifest.shard_template
        if not all(part in template for part in ("{SPLIT}", "{SHARD_X_OF_Y}")):
            raise FormatError(
                f"shard_template must hold {{SPLIT}} and {{SHARD_X_OF_Y}}, and is {template!r:.80}"
            )
        shards = [replace(shard, template=template) for shard in manifest.shards]
        for number, shard in enumerate(shards):
            try:
                paths = (shard.name.path, shard.name.index_path)
            except ValueError as error:
                raise FormatError(f"shards[{number}]: {error}") from error
            _check_inside(paths)
        _check_inside(manifest.files)
        return replace(manifest, shards=shards)

    @property
    def paths(self) -> list[str]:
        """Every file of the dataset but the manifest and `_SUCCESS`, in order of name."""
        return sorted([*self.files, *(shard.name.path for shard in self.shards)])

    @property
    def in_place(self) -> bool:
        """Whether shards lay where they are before there was metadata."""
        return any(shard.file for shard in self.shards)

    @property
    def own_paths(self) -> list[str]:
        """What of `paths` we wrote, and may delete.

        Beside shards of others it is files by names of ours alone, whatever the manifest lists.
        """
        if not self.in_place:
            return self.paths
        theirs = {shard.file for shard in self.shards}
        return sorted(path for path in self.files if path not in theirs and _is_metadata(path))

    def split_shards(self) -> dict[str, list[ShardInfo]]:
        """Returns the shards of each split, in order."""
        splits: dict[str, list[ShardInfo]] = {}
        for shard in sorted(self.shards, key=lambda shard: shard.name):
            splits.setdefault(shard.split, []).append(shard)
        return splits


def _check_inside(paths: Iterable[str]) -> None:
    for path in paths:
        if not is_inside(path):
            raise FormatError(f"it lists {path!r:.80}, which is not inside of the dataset")


def _is_metadata(path: str) -> bool:
    names = ("dataset_info.json", "features.json")
    return path.startswith("_meta/") or path in names or path.endswith(".labels.txt")


def success_bytes(manifest: bytes) -> bytes:
    """Returns the content of `_SUCCESS` for the bytes of a manifest."""
    return encode({"manifest_blake2b": hashlib.blake2b(manifest, digest_size=16).hexdigest()})


def check_success(success: bytes, manifest: bytes) -> bool:
    """Returns whether `_SUCCESS` has the checksum of these bytes of the manifest."""
    return success == success_bytes(manifest)
