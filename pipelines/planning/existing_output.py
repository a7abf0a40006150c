"""What a new run finds at its output: how another run was configured, and what a dataset lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import google_crc32c

from recordmill.records.errors import RunError
from recordmill.records.manifest import MANIFEST_PATH, SUCCESS_PATH, Manifest, check_success
from recordmill.records.spec import options_of
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.images.image_spec import ImagesSpec
from recordmill.transforms.storage import files
from recordmill.transforms.text.written_objective import readable_config

_MOST_NAMED = 3
_LAST_LINE_BYTES = 64  # more than two numbers of 64 bits
_BLOCK_BYTES = 4_000_000
_NOT_SETTINGS = ("input", "pipeline")  # globs do not decide the bytes; what they match does
_FLAGS = {
    ".".join((*place.path, place.field.name)): f"--{each.name}"
    for each in options_of(ImagesSpec).values()
    for place in each.places
} | {  # of options whose last name is not their flag's
    "documents.kind": "--documents",
    "lower_case": "--do_lower_case",
    "objective.name": "--task",
    "seed": "--random_seed",
    "shards.shard_bytes": "--shard_size",
    "statistics_images": "--statistics",
    "vocabulary_blake2b": "the checksum of --vocab_file",
    "vocabulary_size": "the size of --vocab_file",
}
_NO_FLAGS = ("layout", "pillow", "pipeline", "unicode")
_OF_SOURCES = {"files": "files", "images": "images", "bytes": "bytes"}


def describe_difference(old: Manifest | CommitSpec, new: CommitSpec) -> str:
    """Returns how two configurations differ, in one line of at most three settings.

    Args:
      old: of the dataset, or of the unfinished run, that is there.
      new: of the run that was asked for.
    """
    before, now = (dict(_flat(readable_config(config))) for config in (old.config, new.config))
    names = sorted(
        name
        for name in before.keys() | now.keys()
        if before.get(name) != now.get(name)
        and name not in _NOT_SETTINGS
        and ((name in before and name in now) or _is_reported_alone(name))
    )
    if before.get("pipeline") != now.get("pipeline"):
        names = ["pipeline"]
    texts = list(  # some options are part of several others, such as the seed
        dict.fromkeys(
            f"{_flag(n)} was {_show(before.get(n))}, is {_show(now.get(n))}" for n in names
        )
    )
    more = len(texts) - _MOST_NAMED
    shown = texts[:_MOST_NAMED] + ([f"and {more} more"] if more > 0 else [])
    shown += _source_differences(old.sources, new.sources)
    return "; ".join(shown or _version_difference(old.versions, new.versions))


def _is_reported_alone(name: str) -> bool:
    """Tells whether a setting that one of two configurations lacks is a difference of them.

    Others are options of another objective, or have defaults, which earlier releases did not write.
    """
    of_text = name.startswith(("objective.", "documents.", "clean."))
    return not of_text and name not in ("allow_special_tokens", "shard_template")


def _flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yields the settings of nested ones: `("objective.masked_lm_prob", 0.15)`."""
    if not isinstance(value, dict):  # one that is empty has defaults alone
        yield path, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{path}.{key}" if path else str(key))


def _flag(name: str) -> str:
    if name in _FLAGS or name.endswith(".seed"):
        return _FLAGS.get(name, "--random_seed")
    if name.startswith("images.labels."):
        return f"number of label {name.removeprefix('images.labels.')}"
    return name if name in _NO_FLAGS else f"--{name.rpartition('.')[2]}"


def _show(value: object) -> str:
    if value == "":
        return "NONE"
    if isinstance(value, list) and value and isinstance(value[0], dict) and "share" in value[0]:
        return ",".join(_show_split(split) for split in value)
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    text = "unset" if value is None else json.dumps(value, ensure_ascii=False).strip('"')
    return text if len(text) <= 60 else f"{text[:57]}…"


def _show_split(split: dict[str, Any]) -> str:
    shards = split.get("num_shards")
    return f"{split['name']}:{split['share']:g}" + (f" in {shards} shards" if shards else "")


def _source_differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    if old.get("checksum") == new.get("checksum"):
        return
    counts = [
        f"{old[name]} {word} before, {new[name]} now"
        for name, word in _OF_SOURCES.items()
        if name in old and name in new and old[name] != new[name]
    ]
    yield f"the input has changed: {', '.join(counts) or 'other names or sizes of files'}"


def _version_difference(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    changed = [
        f"{name} was {old.get(name)}, is {version}"
        for name, version in new.items()
        if old.get(name) != version
    ]
    yield "another release wrote it" + (f" ({', '.join(changed)})" if changed else "")


def check_whole(output: str, manifest: Manifest) -> None:
    """Checks that the files of a finished dataset are there, and not cut.

    Shards must have their sizes, of a remote folder by one listing. Index files, whose sizes the
    manifest does not have, must end where their shards end. All other files are small, and must
    have their checksums.

    Raises:
      RunError: names the first damaged file, and what to do.
    """
    sizes = files.sizes(files.join(output, path) for path in manifest.paths)
    damaged = list(islice(_missing_or_cut(output, manifest, sizes), _MOST_NAMED + 1))
    damaged = damaged or list(islice(_changed(output, manifest, sizes), _MOST_NAMED + 1))
    if damaged:
        more = " (and others)" if len(damaged) > 1 else ""
        raise RunError(
            f"{output} is finished but damaged: {damaged[0]}{more}; `recordmill verify` names all "
            "defects; copy the broken files again, or repeat this command with --overwrite"
        )


def _missing_or_cut(output: str, manifest: Manifest, sizes: dict[str, int]) -> Iterator[str]:
    for shard in manifest.shards:
        path = shard.name.path
        size = sizes[files.join(output, path)]
        if size < 0:
            yield f"{path} is missing"
        elif size != shard.file_bytes:
            yield f"{path} must have {shard.file_bytes} bytes by the manifest, and has {size}"
    for path in sorted(manifest.files):
        if sizes[files.join(output, path)] < 0:
            yield f"{path} is missing"


def _changed(output: str, manifest: Manifest, sizes: dict[str, int]) -> Iterator[str]:
    """Yields the files beside the shards that do not hold what they must."""
    success = files.read_bytes(files.join(output, SUCCESS_PATH))
    if not check_success(success, files.read_bytes(files.join(output, MANIFEST_PATH))):
        yield f"{SUCCESS_PATH} does not have the checksum of {MANIFEST_PATH}"
    indexed = {s.name.index_path: s for s in manifest.shards if s.name.index_path in manifest.files}
    paths = {files.join(output, path): path for path in sorted(manifest.files)}

    def last_line(path: str) -> bytes:
        size = sizes[path]
        return files.read_bytes(path, max(0, size - _LAST_LINE_BYTES), _LAST_LINE_BYTES)

    ends = [path for path, name in paths.items() if name in indexed]
    for path, end in zip(ends, files.map_files(last_line, ends), strict=True):
        shard = indexed[paths[path]]
        if _end_of_records(end) != shard.record_bytes:
            yield f"{paths[path]} must end where {shard.name.path} does, and does not"
    others = [path for path, name in paths.items() if name not in indexed]
    for path, checksum in zip(others, files.map_files(_checksum, others), strict=True):
        if checksum != manifest.files[paths[path]]:
            yield f"{paths[path]} does not match its checksum in the manifest"


def _end_of_records(index: bytes) -> int:
    """Returns where the last record ends by the last bytes of an index, -1 where they are cut."""
    if not index:
        return 0
    last = index.splitlines()[-1].split()
    if not index.endswith(b"\n") or len(last) != 2 or not all(part.isdigit() for part in last):
        return -1
    return int(last[0]) + int(last[1])


def _checksum(path: str) -> int:
    """Returns the crc32c of a file, which may be a long list of rejects."""
    checksum = offset = 0
    while block := files.read_bytes(path, offset, _BLOCK_BYTES):
        checksum = google_crc32c.extend(checksum, block)
        offset += len(block)
    return int(checksum)
