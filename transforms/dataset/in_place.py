"""Shards that another tool wrote, and that stay where they are: no job replaces or deletes them.

They are a user's only copy. So each of three files alone keeps other jobs from their folder: the
marker of an unfinished run, `_meta/in_place.txt` and the manifest, whole or damaged.
"""

from __future__ import annotations

from collections.abc import Iterable

from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import Manifest
from recordmill.records.regular_files import NotRegularError
from recordmill.transforms.dataset.run_state import Marker
from recordmill.transforms.dataset.workspace import Workspace, read_manifest
from recordmill.transforms.storage import files

OPTION = "in_place_metadata"  # of the configuration
_COMMAND = b"# Settings of recordmill index;"  # of the settings of a command without that option
NOTE = (
    b"The TFRecords of this folder were here before recordmill made its metadata.\n"
    b"No command of recordmill writes, renames or deletes them.\n"
)


_KEPT = b"Of another tool: "


def note_text(kept: Iterable[str]) -> bytes:
    """Returns the content of the note of a folder.

    Args:
      kept: the names of metadata in it that another tool wrote.
    """
    return NOTE + b"".join(_KEPT + name.encode() + b"\n" for name in kept)


def noted_names(output: str) -> list[str] | None:
    """Returns what the note of a folder says that another tool wrote; None without a note.

    The note is written before our own metadata, and so tells one from the other also where a run
    was killed, or where the manifest is damaged.
    """
    try:
        lines = files.read_bytes(files.join(output, m.IN_PLACE_PATH)).split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    kept = (line.removeprefix(_KEPT) for line in lines if line.startswith(_KEPT))
    return [name.decode(errors="replace") for name in kept]


def is_foreign(output: str, name: str, noted: list[str] | None) -> bool:
    """Tells whether metadata at an output is of another tool, by all that is told of it.

    Args:
      output: the folder.
      name: of the file.
      noted: what the note of the folder says.
    """
    if noted is None or name in noted:
        return True
    try:  # the note may be damaged: what we wrote, the manifest lists
        manifest = read_manifest(output)
        return manifest is not None and name not in manifest.files
    except RunError:
        return False


def check_place(workspace: Workspace, old: Manifest | None) -> None:
    """Checks that shards of others and shards of ours do not meet in one folder.

    Args:
      workspace: of the job that is to run.
      old: the manifest at its output, None where there is none that can be read.

    Raises:
      UsageError: one kind is there, and the job is for the other; --overwrite changes nothing.
    """
    output, marker = workspace.output, Marker.read(workspace.staging)
    if not workspace.in_place:
        if (old and old.in_place) or (marker and marker.in_place) or has_note(output):
            raise UsageError(
                f"{output} holds TFRecords that were there before recordmill, with metadata of "
                "`recordmill index`; no command replaces or deletes them: choose another output"
            )
        return
    if old and not old.in_place:
        raise UsageError(
            f"{output} is a dataset of recordmill, and has its metadata; `recordmill index` is "
            "for TFRecords of other tools"
        )
    if marker and not marker.in_place:
        beside = [files.join(output, name) for name in ("_meta", m.SUCCESS_PATH)]
        others = "".join(f" and {path}" for path in beside if files.exists(path))
        raise UsageError(
            f"{workspace.staging} is of an unfinished run of another command; finish that, or "
            f"delete this folder{others}"
        )


def has_note(output: str) -> bool:
    """Tells whether a folder of metadata says, whatever else in it is damaged, what it is of."""
    if files.exists(files.join(output, m.IN_PLACE_PATH)):
        return True
    for path in (m.MANIFEST_PATH, m.CONFIG_PATH):
        try:
            content = files.read_bytes(files.join(output, path))
            if OPTION.encode() in content or content.startswith(_COMMAND):
                return True
        except (FileNotFoundError, NotADirectoryError, NotRegularError, RunError):
            continue
    return False
