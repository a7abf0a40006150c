"""The workspace of a run: the output, the temporary folders, and the files in them.

    <output>/            the dataset; complete when `_SUCCESS` is there
    <staging>/           finished shards and their descriptions, on the output's file system
    <work>/              the plan and intermediate files; the same folder unless --temp_dir is given

A run claims both temporary folders with a marker before it writes to them, so that a later run may
delete them. The plan is written last in phase 1: if it exists, the run can be resumed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from apache_beam.io.filesystem import BeamIOError

from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import Manifest, ShardInfo
from recordmill.records.shards import ShardName, is_shard_file, shard_folder
from recordmill.records.typed_json import Count, FormatError, Uint32, convert, decode
from recordmill.transforms.storage import files

MARKER = "of_recordmill"  # in a folder of temporary files: it may be deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The folders that a run writes to.

    Attributes:
      output: the dataset.
      work: where the plan and intermediate files lie until the end.
      staging: where finished shards wait, on the output's own file system.
    """

    output: str
    work: str
    staging: str

    @property
    def absolute_output(self) -> str:
        """The output, from the root on."""
        return os.path.abspath(self.output) if files.is_local(self.output) else self.output

    @property
    def plan_path(self) -> str:
        """The file of the plan, which is written last: if it exists, it is whole."""
        return files.join(self.work, "plan.json")

    @property
    def partial_folder(self) -> str:
        """The folder of unfinished files, for folders that are published as a whole."""
        return files.join(self.staging, "partial")

    @property
    def rejected_folder(self) -> str:
        """The rejects of all work items."""
        return files.join(self.staging, "rejected")

    @property
    def failure_path(self) -> str:
        """The file with the reason why the run ended, in one line, for the launching process."""
        return files.join(self.staging, "failure.txt")

    @property
    def over_budget_path(self) -> str:
        """The file that marks a run that ended over the budget of rejects."""
        return files.join(self.staging, "over_budget")

    @property
    def old_dataset_removed_path(self) -> str:
        """The file that marks that the dataset which this run replaces is removed."""
        return files.join(self.staging, "old_dataset_removed")

    @property
    def success_path(self) -> str:
        """`_SUCCESS` of the finished dataset."""
        return files.join(self.output, m.SUCCESS_PATH)

    def rejected_path(self, number: int) -> str:
        """The rejects of one work item."""
        return files.join(self.rejected_folder, f"rejected-{number:06d}.jsonl")

    def done_path(self, name: ShardName) -> str:
        """The description of a finished shard."""
        return files.join(self.staging, "done", f"{name.stem}.json")

    def index_path(self, name: ShardName) -> str:
        """The index of a finished shard, until it is published."""
        return files.join(self.staging, "index", name.index_path.removeprefix("_meta/index/"))

    def shard_path(self, name: ShardName) -> str:
        """A finished shard, until it is published."""
        return files.join(self.staging, "shards", name.path)

    @property
    def folders(self) -> list[str]:
        """The temporary folders, each once."""
        return sorted({self.work, self.staging})

    @property
    def is_claimed(self) -> bool:
        """Whether the staging folder belongs to a run of recordmill, and may be deleted."""
        return files.exists(files.join(self.staging, MARKER))

    def is_complete(self, fingerprint: str) -> bool:
        """Returns whether the dataset at the output is finished and has this fingerprint."""
        manifest = read_manifest(self.output)
        return (
            manifest is not None
            and manifest.fingerprint == fingerprint
            and files.exists(self.success_path)
        )

    def read_plan(self) -> dict[str, Any] | None:
        """Returns the content of the plan, None if there is none."""
        if not files.exists(self.plan_path):
            return None
        plan: dict[str, Any] = read_json(self.plan_path, dict[str, Any])
        return plan

    def other_work(self) -> str:
        """Returns the work folder of an unfinished run for this output, if it is another one.

        Such a run was begun with another --temp_dir. Returns "" if there is none.
        """
        marker = files.join(self.staging, MARKER)
        if not files.exists(marker):
            return ""
        work = files.read_bytes(marker).decode().strip()
        elsewhere = work not in ("", self.work) and files.exists(files.join(work, "plan.json"))
        return work if elsewhere else ""

    def check_free(self, names: Iterable[str], listed: set[str]) -> None:
        """Checks that nothing but our own files lies where the run will write.

        Args:
          names: of the files and folders that the dataset will have, relative to the output.
          listed: what the manifest of the dataset at the output lists, relative to it.

        Raises:
          UsageError: names a file that is not ours.
        """
        for name in names:
            path = files.join(self.output, name)
            there = files.list_files(path) or ([path] if files.exists(path) else [])
            foreign = [p for p in there if p[len(self.output) :].lstrip("/") not in listed]
            if foreign and not (files.is_local(path) and os.path.isdir(foreign[0])):
                raise UsageError(
                    f"{path} already holds {len(foreign)} files that no dataset of recordmill "
                    f"lists, such as {foreign[0]}; move them away or choose another --output"
                )
        for folder in self.folders:
            if files.list_files(folder) and not files.exists(files.join(folder, MARKER)):
                raise UsageError(
                    f"{folder} is needed for temporary files, and holds others; move them"
                )

    def check_no_shards(self, splits: Iterable[str], template: str, listed: set[str]) -> None:
        """Checks that no foreign file has the name of a shard, where no folder keeps them apart.

        Args:
          splits: that will be written.
          template: of the paths of shards.
          listed: as in `check_free`.

        Raises:
          UsageError: names such a file.
        """
        if shard_folder("x", template):
            return
        for path in files.list_files(self.output):
            name = path[len(self.output) :].lstrip("/")
            if name not in listed and any(is_shard_file(name, s, template) for s in splits):
                raise UsageError(
                    f"{self.output} already holds {name}, which readers would take for a shard of "
                    "this dataset; move it away or choose another --output"
                )

    def claim(self) -> None:
        """Makes the temporary folders anew, empty but for the marker.

        Raises:
          UsageError: a folder cannot be written to.
        """
        for folder in self.folders:
            files.delete_folder(folder)
            flag = "--temp_dir" if folder == self.work != self.staging else "--output"
            check_writable(folder, flag)
            files.write_bytes(files.join(folder, MARKER), f"{self.work}\n".encode())

    def discard_run(self, *, published: bool) -> None:
        """Removes the files of an unfinished run outside of the temporary folders of this run.

        Args:
          published: whether the shards in the data folders are of that run: there is no manifest.
        """
        work = self.other_work()
        if work:
            files.delete_folder(work)
        if not published:
            return
        done = files.list_files(files.join(self.staging, "done"))
        names = [read_json(path, ShardDescription).shard.name for path in done]
        paths = [path for name in names for path in (name.path, name.index_path)]
        rejected = files.list_files(files.join(self.output, m.REJECTED_PATH))
        files.delete_quietly([*(files.join(self.output, path) for path in paths), *rejected])
        if files.is_local(self.output):
            _remove_empty(files.join(self.output, shard_folder(n.split, n.template)) for n in names)

    def abandon(self) -> None:
        """Removes the files that planning wrote, and the output's folder if it is empty then."""
        for folder in self.folders:
            files.delete_folder(folder)
        if files.is_local(self.output):
            _remove_empty([self.output])

    def clean_up(self) -> None:
        """Removes all temporary files, the plan first: no run must resume from the other files."""
        files.delete_quietly([self.plan_path])
        files.delete_folder(self.work)
        files.delete_folder(self.staging)


def read_manifest(output: str) -> Manifest | None:
    """Returns the manifest of a dataset, None where there is none.

    Raises:
      RunError: it cannot be read.
    """
    path = files.join(output, m.MANIFEST_PATH)
    if not files.exists(path):
        return None
    try:
        return Manifest.from_bytes(files.read_bytes(path))
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {error}") from error


def check_inside(output: str, paths: Iterable[str]) -> None:
    """Checks that paths which a file names lie inside the dataset, links resolved.

    A manifest may come from somebody else: what it lists must not make us touch other files.

    Args:
      output: the dataset.
      paths: relative to it.

    Raises:
      RunError: names the first path that lies elsewhere.
    """
    root = os.path.realpath(output) if files.is_local(output) else output
    folders: dict[str, bool] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder not in folders:
            parts = folder.split("/")
            inside = not path.startswith("/") and "://" not in path and ".." not in parts
            if inside and files.is_local(output):
                real = os.path.realpath(os.path.join(root, folder))
                inside = real == root or real.startswith(f"{root.rstrip('/')}/")
            folders[folder] = inside
        if not folders[folder] or name in ("", ".", ".."):
            raise RunError(
                f"{output} has a manifest that lists {path!r}, which is not inside of the "
                "dataset; it is damaged or was tampered with: remove the dataset by hand"
            )


def remove_dataset(output: str, manifest: Manifest) -> None:
    """Deletes exactly what the manifest lists, `_SUCCESS` first.

    Raises:
      RunError: the manifest lists a path outside of the dataset; nothing is deleted then.
    """
    check_inside(output, manifest.paths)
    files.delete_quietly([files.join(output, m.SUCCESS_PATH)])
    files.delete_quietly([files.join(output, path) for path in manifest.paths])
    files.delete_quietly([files.join(output, m.MANIFEST_PATH)])
    if files.is_local(output):
        folders = {str(folder) for path in manifest.paths for folder in PurePath(path).parents}
        _remove_empty(
            files.join(output, folder) for folder in sorted(folders - {"."}, reverse=True)
        )


def _remove_empty(folders: Iterable[str]) -> None:
    for folder in dict.fromkeys(folders):
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)


def reason(error: Exception) -> str:
    """Returns the message of an error of a file system, without its number and path."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def check_writable(folder: str, flag: str = "--output") -> None:
    """Writes and deletes a small file.

    Raises:
      UsageError: the folder cannot be written to.
    """
    probe = files.join(folder, f".recordmill-probe-{os.getpid()}")
    try:
        files.make_folder(folder)
        files.write_bytes(probe, b"x")
        files.delete_quietly([probe])
    except (OSError, BeamIOError, ValueError) as error:
        raise UsageError(f"{flag} {folder} cannot be written: {reason(error)}") from error


@dataclass(frozen=True)
class ShardDescription:
    """What a file says of a finished shard.

    Attributes:
      shard: as the manifest will list it.
      statistics: of the kind of job.
      index: bytes and crc32c of its index, None where it has none.
    """

    shard: ShardInfo
    statistics: dict[str, Any]
    index: tuple[Count, Uint32] | None = None


def read_json(path: str, kind: Any = object) -> Any:
    """Reads a JSON file of the run.

    Args:
      path: of the file.
      kind: the type of its content, as msgspec takes it.

    Raises:
      RunError: it is cut, or of another type.
    """
    return parse_json(files.read_bytes(path), path, kind)


def parse_json(content: bytes, path: str, kind: Any = object) -> Any:
    """Reads the bytes of a JSON file of the run, as `read_json` does."""
    try:
        return decode(content, kind)
    except FormatError as error:
        raise damaged(path, error) from error


def typed_statistics(content: Any, kind: Any) -> Any:
    """Returns the statistics of a shard, as its description has them, as values of some kind.

    Raises:
      RunError: they are of another kind.
    """
    try:
        return convert(content, kind)
    except FormatError as error:
        raise wrong_statistics(error) from error


def wrong_statistics(error: Exception) -> RunError:
    """Returns the error of statistics of a shard that are not what the run wrote."""
    return RunError(
        f"the statistics of a shard are not what this run wrote: {error}; check the storage and "
        "start anew with --overwrite"
    )


def damaged(path: str, error: Exception) -> RunError:
    """Returns the error of a file of the run that is not what the run wrote."""
    return RunError(
        f"{path} is a file of this run, and is not what it wrote: {error}; check the storage and "
        "start anew with --overwrite"
    )


def write_json(path: str, content: Any) -> None:
    """Writes a JSON file of the run, whole or not at all."""
    files.write_bytes(path, json.dumps(content, sort_keys=True).encode())
