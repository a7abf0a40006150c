"""Open a dataset by its `_SUCCESS`, manifest and schema, before any shard is opened."""

from __future__ import annotations

import os
from dataclasses import dataclass

import google_crc32c

from recordmill.reader.record_ranges import Ints, parse_index
from recordmill.reader.shard_files import is_local
from recordmill.records.errors import UsageError, one_of
from recordmill.records.inside import check_inside
from recordmill.records.manifest import (
    MANIFEST_PATH,
    SUCCESS_PATH,
    Manifest,
    ShardInfo,
    check_success,
)
from recordmill.records.manifest_checks import shard_defects
from recordmill.records.regular_files import open_regular
from recordmill.records.schema import Schema
from recordmill.records.shards import is_shard_file, shard_folder


@dataclass(frozen=True, slots=True)
class Split:
    """The shards of one split, in order.

    Attributes:
      name: of the split.
      shards: the manifest's description of each.
    """

    name: str
    shards: tuple[ShardInfo, ...]

    @property
    def records(self) -> int:
        """The examples in all its shards."""
        return sum(shard.records for shard in self.shards)


@dataclass(frozen=True, slots=True)
class FinishedDataset:
    """A dataset whose `_SUCCESS` holds the checksum of its manifest."""

    path: str
    manifest: Manifest
    schema: Schema

    def file(self, name: str) -> str:
        """Returns the path of a file of the dataset."""
        return _join(self.path, name)

    def read(self, name: str) -> bytes:
        """Returns the bytes of a small file of the dataset.

        Raises:
          RunError: it lies outside of the dataset.
          UsageError: there is no such file, it cannot be read, or it has not the checksum of the
            manifest.
        """
        check_inside(self.path, [name], follow=True)
        content = read_file(self.file(name))
        if content is None:
            raise UsageError(
                f"{self.path} must hold {name}, which the manifest lists, and does not; copy the "
                "dataset again, whole"
            )
        expected = self.manifest.files.get(name)
        if expected is not None and google_crc32c.value(content) != expected:
            raise UsageError(
                f"{self.file(name)} must have the checksum of the manifest, and has another; copy "
                "it again, and check the dataset with `recordmill verify`"
            )
        return content

    def index(self, shard: ShardInfo) -> Ints:
        """Returns the byte offset of each record of a shard, `[num_records] int64`."""
        name = shard.name.index_path
        return parse_index(self.read(name), shard.records, 1, name, record_bytes=shard.record_bytes)

    def check_files(self, split: Split) -> None:
        """Checks that a split's folder holds its shards and nothing else.

        Hidden files, such as `.DS_Store`, do not matter. Shards that lie beside the dataset's other
        files are recognized by their names.

        Raises:
          UsageError: a shard is missing, or another file is there.
          RunError: a shard lies outside of the dataset.
        """
        check_inside(self.path, (shard.name.path for shard in split.shards), follow=True)
        if any(shard.file for shard in split.shards):
            self._check_named_files(split)
            return
        template = self.manifest.shard_template
        inside = shard_folder(split.name, template)
        folder = self.file(inside) if inside else self.path
        present = {name.rstrip("/") for name in _list(folder) if not name.startswith(".")}
        if not inside:
            present = {name for name in present if is_shard_file(name, split.name, template)}
        expected = {shard.name.path.rpartition("/")[2] for shard in split.shards}
        for names, rule in (
            (expected - present, "must hold every shard that the manifest lists, and lacks"),
            (
                present - expected,
                "must hold nothing but the shards that the manifest lists, and has",
            ),
        ):
            if names:
                some = ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")
                raise UsageError(
                    f"{folder} {rule} {some}; put the folder right, and check it with "
                    "`recordmill verify`"
                )

    def _check_named_files(self, split: Split) -> None:
        """Checks that the files are there which another tool wrote; others may lie beside them."""
        listed: dict[str, set[str]] = {}
        for shard in split.shards:
            inside, _, name = shard.name.path.rpartition("/")
            folder = self.file(inside) if inside else self.path
            if folder not in listed:
                listed[folder] = set(_list(folder))
            if name not in listed[folder]:
                raise UsageError(
                    f"{folder} must hold every shard that the manifest lists, and lacks {name}; "
                    "put it back, or make the metadata anew by `recordmill examples "
                    "--in_place_metadata --overwrite`"
                )

    @property
    def split_records(self) -> dict[str, int]:
        """The records of each split."""
        return {name: self.split(name).records for name in self.manifest.split_shards()}

    def split(self, name: str) -> Split:
        """Returns a split.

        Raises:
          UsageError: there is none of that name; the message lists those there are.
        """
        splits = self.manifest.split_shards()
        shards = splits[one_of(f"{self.path}: split", name, splits)]
        return Split(name, tuple(shards))


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


def read_file(path: str) -> bytes | None:
    """Returns the bytes of a small file, local or on a file system of TensorFlow.

    Returns None if it is missing.

    Raises:
      UsageError: it cannot be read, such as a fifo, or a file of another user.
    """
    if is_local(path):
        try:
            with open_regular(path) as handle:
                return handle.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error.strerror or str(error)) from error
    import tensorflow as tf

    try:
        with tf.io.gfile.GFile(path, "rb") as handle:
            content: bytes = handle.read()
            return content
    except tf.errors.NotFoundError:
        return None
    except tf.errors.OpError as error:
        raise _unreadable(path, error.message) from error


def _unreadable(path: str, reason: str) -> UsageError:
    return UsageError(
        f"{path} cannot be read ({' '.join(reason.split())}); copy the file again, or see that you "
        "may read it"
    )


def _list(folder: str) -> list[str]:
    """Returns the names in a folder, none if there is no such folder.

    Raises:
      UsageError: it may not be read.
    """
    if is_local(folder):
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(folder, error.strerror or str(error)) from error
    import tensorflow as tf

    return list(tf.io.gfile.listdir(folder)) if tf.io.gfile.isdir(folder) else []


def open_dataset(path: str | os.PathLike[str]) -> FinishedDataset:
    """Returns the finished dataset at `path`.

    Args:
      path: the folder that holds `_SUCCESS`; local, `gs://…` or what else TensorFlow opens.

    Raises:
      UsageError: there is no `_SUCCESS`, or it has the checksum of another manifest, or of one that
        this release cannot read; or one of the two is no regular file.
      RunError: the manifest lists a file outside of the dataset.
    """
    folder = os.fspath(path)
    success = read_file(_join(folder, SUCCESS_PATH))
    if success is None:
        raise UsageError(
            f"a dataset must have {SUCCESS_PATH}, which is written last, and {folder} has none: "
            "give the folder that holds it, or run the pipeline's command again to finish it"
        )
    content = read_file(_join(folder, MANIFEST_PATH))
    if content is None or not check_success(success, content):
        problem = "is missing" if content is None else "is another one"
        raise UsageError(
            f"{SUCCESS_PATH} must vouch for {MANIFEST_PATH}, which {problem} in {folder}: see what "
            "is broken with `recordmill verify`, then copy or write the dataset anew"
        )
    try:
        manifest = Manifest.from_bytes(content)
        schema = Schema.from_json(manifest.features)
    except ValueError as error:
        raise UsageError(f"{_join(folder, MANIFEST_PATH)} cannot be used: {error}") from error
    check_inside(folder, manifest.paths)
    if defect := next(shard_defects(manifest), ""):
        raise UsageError(
            f"{_join(folder, MANIFEST_PATH)} cannot be used: {defect}; see all by `recordmill "
            "verify`, and copy or write the dataset anew"
        )
    return FinishedDataset(folder, manifest, schema)


def check_schema(dataset: FinishedDataset, expected: Schema) -> None:
    """Checks that a dataset holds the features that its reader was made for.

    Raises:
      UsageError: names every feature that is missing, too many, or of another dtype or shape.
    """

    def described(schema: Schema) -> dict[str, str]:
        return {
            f.name: f"{'sequence of ' * f.sequence}{f.dtype} {list(f.shape)}"
            for f in schema.features
        }

    stored, wanted = described(dataset.schema), described(expected)
    differences = [
        f"{name} must be {wanted.get(name, 'absent')}, and is {stored.get(name, 'absent')}"
        for name in sorted(stored.keys() | wanted.keys())
        if stored.get(name) != wanted.get(name)
    ]
    if differences:
        raise UsageError(
            f"{dataset.path} has another schema than expected: {'; '.join(differences)}; read "
            "another dataset, or write this one with other flags"
        )
