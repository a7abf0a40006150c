"""The workspace of a run: the output, the temporary folders, and the files in them.

    <output>/            the dataset; complete when `_SUCCESS` is there
    <staging>/           finished shards and their descriptions, on the output's file system
    <work>/              the plan and intermediate files; the same folder unless --temp_dir is given

A run claims both temporary folders with a marker before it writes to them, so that a later run may
delete them. The plan is written last in phase 1: where it is, the run can be resumed. Marker, plan
and every description carry the token of the plan; shards lie in a folder of this name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Protocol

import msgspec

from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import Manifest
from recordmill.records.regular_files import NotRegularError
from recordmill.records.shards import (
    ShardName,
    is_shard_file,
    shard_folder,
)
from recordmill.records.state import T
from recordmill.transforms.dataset.removal import delete_inside, remove_empty
from recordmill.transforms.dataset.run_state import (
    DamagedStateError,
    LostFoldersError,
    Marker,
    check_claimable,
    is_own,
    owner_of,
    read_state,
    remove_claimed,
    write_state,
)
from recordmill.transforms.dataset.writable import check_writable
from recordmill.transforms.storage import files

# What workers make in the temporary folders.
_OWN_FOLDERS = {
    "done", "dropped", "duplicates", "elements", "fingerprints", "index", "inputs", "lists",
    "notes", "packs", "partial", "parts", "rejected", "runs-", "shards", "statistics", "transform",
}  # fmt: skip

_STAYS = ".stays"
_UNFINISHED = re.compile(r".*/\.(run\.json|report\.html)\.[0-9a-f]{12}\.tmp", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The folders that a run writes to.

    Attributes:
      output: the dataset.
      work: where the plan and intermediate files lie until the end.
      staging: where finished shards wait, on the output's own file system.
      token: of the plan; "" before there is one, and where nobody else writes.
      in_place: shards of others are at the output, and stay as they are.
      of_pipeline: a user's own pipeline writes, whose run nobody else can finish.
    """

    output: str
    work: str
    staging: str
    token: str = ""
    in_place: bool = False
    of_pipeline: bool = False

    @property
    def absolute_output(self) -> str:
        """The output, from the root on."""
        return os.path.abspath(self.output) if files.is_local(self.output) else self.output

    @property
    def plan_path(self) -> str:
        """The file of the plan, which is written last: if it exists, it is whole."""
        return files.join(self.work, "plan.json")

    @property
    def inputs_folder(self) -> str:
        """Where the plan keeps the input: work items, or references of images."""
        return files.join(self.work, "inputs", self.token) if self.token else self.work

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
    def notes_folder(self) -> str:
        """What workers of engines are reading, see `worker_note.py`."""
        return files.join(self.staging, "notes")

    @property
    def over_budget_path(self) -> str:
        """A mark that --overwrite begins anew: too many rejects, or state that is damaged."""
        return files.join(self.staging, "over_budget")

    @property
    def unfit_options_path(self) -> str:
        """A mark that no command can finish the run, so that every other begins anew."""
        return files.join(self.staging, "unfit_options")

    @property
    def can_be_finished(self) -> bool:
        """Whether the run that is here, if there is one, has not ended with options that do not
        fit its input."""
        return not files.exists(self.unfit_options_path)

    @property
    def old_dataset_removed_path(self) -> str:
        """The file that marks that the dataset which this run replaces is removed."""
        return files.join(self.staging, "old_dataset_removed")

    @property
    def publishing_path(self) -> str:
        """The file that marks that this run has begun to publish: what is there then is its own."""
        return files.join(self.staging, "publishing")

    @property
    def success_path(self) -> str:
        """`_SUCCESS` of the finished dataset."""
        return files.join(self.output, m.SUCCESS_PATH)

    @property
    def of_lists(self) -> Workspace:
        """Where work items write lists of rejects and the like.

        What lies in this workspace is published as it is. Elements have no order, and how they came
        to work items must not show, so their lists lie elsewhere until they are sorted into one.
        """
        if not self.of_pipeline:
            return self
        return replace(self, staging=files.join(self.work, "lists"))

    def rejected_path(self, number: int) -> str:
        """The rejects of one work item."""
        return self._own(self.rejected_folder, f"rejected-{number:06d}.jsonl")

    def dropped_path(self, number: int) -> str:
        """The list of the documents that one work item dropped."""
        return self._own(files.join(self.staging, "dropped"), f"dropped-{number:06d}.jsonl.gz")

    def _own(self, folder: str, name: str) -> str:
        """Returns a path that no other run has: what lies there is published as it is."""
        return files.join(folder, self.token, name) if self.token else files.join(folder, name)

    @property
    def done_folder(self) -> str:
        """The folder of the descriptions of finished shards."""
        return files.join(self.staging, "done")

    def done_path(self, name: ShardName) -> str:
        """The description of a finished shard."""
        # Those of files that others wrote are told by their names: a discarded run removes shards.
        return files.join(self.done_folder, f"{name.stem}{_STAYS * bool(name.file)}.json")

    def index_path(self, name: ShardName) -> str:
        """The index of a finished shard, until it is published."""
        folder = files.join(self.staging, "index")
        return self._own(folder, name.index_path.removeprefix("_meta/index/"))

    def shard_path(self, name: ShardName) -> str:
        """A finished shard, until it is published."""
        return self._own(files.join(self.staging, "shards"), name.path)

    @property
    def folders(self) -> list[str]:
        """The temporary folders, each once."""
        return sorted({self.work, self.staging})

    @property
    def is_claimed(self) -> bool:
        """Whether the staging folder belongs to a run of recordmill, and may be deleted."""
        return Marker.read(self.staging) is not None

    def is_complete(self, fingerprint: str) -> bool:
        """Tells whether the dataset at the output is finished and has this fingerprint."""
        try:
            content = files.read_bytes(files.join(self.output, m.MANIFEST_PATH))
            success = files.read_bytes(self.success_path)
            # A power loss may leave it empty. With other bytes, the dataset is damaged.
            return bool(success) and Manifest.from_bytes(content).fingerprint == fingerprint
        except (FileNotFoundError, NotADirectoryError, NotRegularError, ValueError):
            return False

    @property
    def has_written_dataset(self) -> bool:
        """Whether the dataset at the output is of this run of a user's own pipeline."""
        return owner_of(files.join(self.output, m.RUN_PATH)) == self.token != ""

    def write_state(self, path: str, content: msgspec.Struct) -> None:
        """Writes a file of state with the token of this run."""
        write_state(path, self.token, content)

    def read_state(self, path: str, kind: type[T]) -> T | None:
        """Returns what a file of state says, None where it is missing, damaged or another run's."""
        return read_state(path, self.token, kind)

    def need_state(self, path: str, kind: type[T]) -> T:
        """Returns what a file of state says that cannot be made anew.

        Raises:
          DamagedStateError: it is missing, damaged or of another run.
        """
        content = self.read_state(path, kind)
        if content is None:
            raise DamagedStateError(
                f"{path} is missing, damaged or of another run; start anew with --overwrite"
            )
        return content

    def check_own(self) -> None:
        """Checks that the temporary folders are still those of this run.

        Raises:
          LostFoldersError: they were deleted, or another run has begun at this output.
        """
        if not self.token:
            return
        for folder in self.folders:
            if not is_own(folder, self.token):
                there = Marker.read(folder) is not None
                what = "now belongs to another run" if there else "was deleted while the run worked"
                raise LostFoldersError(
                    f"{folder} {what}; see that nothing else writes there, and run the same "
                    "command again"
                )

    def holds(self, path: str, target: str, size: int) -> bool:
        """Tells whether a finished file is there with its size: staged, or published already.

        Args:
          path: where it waits.
          target: where it will be, relative to the output.
          size: in bytes.
        """
        found = files.size(path)
        return size == (found if found >= 0 else files.size(files.join(self.output, target)))

    def holds_rejects(self, number: int, size: int) -> bool:
        """Tells the same of the rejects of a work item; one without rejects has no file."""
        path = self.rejected_path(number)
        return not size or self.holds(path, f"{m.REJECTED_PATH}/{path.rpartition('/')[2]}", size)

    def other_work(self) -> str:
        """Returns the work folder of an unfinished run for this output, if it is another one.

        That is so where the run was begun with another --temp_dir; else "". A folder that has not
        the same token as the staging folder is not of that run, whatever the marker says.
        """
        marker = Marker.read(self.staging)
        if marker is None or not marker.work or marker.work == self.work:
            return ""
        return marker.work if is_own(marker.work, marker.run) else ""

    def check_links(self, splits: Iterable[str], template: str) -> None:
        """Checks that what the run will write lies in folders of the output: no link, no file.

        Args:
          splits: that will be written.
          template: of the paths of shards.

        Raises:
          UsageError: names what is no folder.
        """
        if not files.is_local(self.output):
            return
        metadata = files.join(self.output, os.path.dirname(m.MANIFEST_PATH))
        within = [os.path.join(at, name) for at, names, _ in os.walk(metadata) for name in names]
        splits = list(splits)
        inside = [m.REJECTED_PATH, m.DROPPED_PATH]
        for split in splits:
            name = ShardName(split, 0, 1, template, file=split * self.in_place)
            inside += [str(each) for each in PurePosixPath(name.index_path).parents]
        inside += [] if self.in_place else [shard_folder(split, template) for split in splits]
        made = [os.path.join(self.output, folder) for folder in inside if folder not in ("", ".")]
        for folder in (metadata, *within, *made):
            if os.path.islink(folder):
                raise UsageError(
                    f"--output must hold its own folders, and {folder} is a link; remove the link, "
                    "or choose another --output"
                )
            if os.path.lexists(folder) and not os.path.isdir(folder):
                raise UsageError(
                    f"--output must hold its own folders, and {folder} is none; move it away, or "
                    "choose another --output"
                )

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
          UsageError: a folder cannot be written to, or holds files of others.
        """
        self.remove_revived(claimed=False)
        for folder in self.folders:
            check_claimable(folder)
        for folder in self.folders:
            remove_claimed(folder)
            flag = "--temp_dir" if folder == self.work != self.staging else "--output"
            check_writable(folder, flag)
            Marker(self.work, self.token, self.in_place).write(folder)

    def discard_run(self, *, published: bool, template: str) -> None:
        """Removes what an unfinished run left outside of the temporary folders of this one.

        Args:
          published: there is no manifest, so the shards in the data folders are of that run.
          template: of the paths of its shards.
        """
        work = self.other_work()
        if work:
            remove_claimed(work)
        if published:
            done = files.list_files(self.done_folder)
            names = [name for path in done if (name := _name_of_description(path, template))]
            paths = [path for name in names for path in _written(name)]
            for folder in (m.REJECTED_PATH, m.DROPPED_PATH):
                lists = files.list_files(files.join(self.output, folder))
                paths += [path[len(self.output) :].lstrip("/") for path in lists]
            delete_inside(self.output, paths, named_by="an unfinished run")

    def abandon(self) -> None:
        """Removes what planning wrote, and the output's folder where nothing else is in it."""
        self.clean_up()
        if files.is_local(self.output):
            remove_empty([self.output])

    def remove_revived(self, *, claimed: bool = True) -> None:
        """Removes temporary folders that were deleted and that workers have made once more.

        Args:
          claimed: by this run; else, beside shards of others, such a folder may be the user's.
        """
        if self.in_place and not claimed:
            self._remove_unfinished()
            return
        for folder in self.folders:
            if files.is_local(folder) and os.path.isdir(folder) and not Marker.read(folder):
                names = {name.rstrip("0123456789") for name in os.listdir(folder)}
                if names <= _OWN_FOLDERS:
                    files.delete_folder(folder)

    def _remove_unfinished(self) -> None:
        """Removes what a command wrote of itself behind its end, and did not finish."""
        paths = files.list_files(self.partial_folder)
        if files.is_local(self.output) and all(map(_UNFINISHED.fullmatch, paths)):
            files.delete_quietly(paths)
            remove_empty([self.partial_folder, self.staging])

    def clean_up(self) -> None:
        """Removes all temporary files; the plan first, so that no run resumes from the rest."""
        if is_own(self.work, self.token) or (not self.token and Marker.read(self.work)):
            files.delete_quietly([self.plan_path])
        for folder in (self.work, self.staging):
            marker = Marker.read(folder)
            if not (self.token and marker and marker.run != self.token):
                remove_claimed(folder)


def _name_of_description(path: str, template: str) -> ShardName | None:
    """Returns the shard that a description is of, by its file name alone: it may be damaged."""
    try:
        stem = path.rpartition("/")[2].removesuffix(".json")
        if stem.endswith(_STAYS):
            name = ShardName.parse(stem.removesuffix(_STAYS), "{SPLIT}-{SHARD_X_OF_Y}")
            return replace(name, file=stem)  # which of them it is does not matter
        return ShardName.parse(stem, "{SPLIT}-{SHARD_X_OF_Y}").with_template(template)
    except ValueError:
        return None


def _written(name: ShardName) -> list[str]:
    """Returns what a run wrote of a shard, relative to the output."""
    return [name.index_path] if name.file else [name.path, name.index_path]


def read_manifest(output: str) -> Manifest | None:
    """Returns the manifest of a dataset, None where there is none.

    Raises:
      RunError: it cannot be read.
    """
    path = files.join(output, m.MANIFEST_PATH)
    try:
        return Manifest.from_bytes(files.read_bytes(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {error}") from error


class Run(Protocol):
    """What stages need to know of a job, whatever it makes."""

    @property
    def workspace(self) -> Workspace:
        """The folders of the run."""
        ...

    def worded(self, message: str) -> str:
        """Returns a message as the job's users know its options."""
        ...
