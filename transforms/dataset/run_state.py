"""Files in which a run keeps its state, and whose they are.

Each plan draws a token. The marker of a temporary folder has it, and every file of state: what has
another token, is damaged, cut or missing counts as not done, and is made anew. So files of two
runs never mix, and a power loss costs no more than the work that it hit.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from recordmill.records.errors import RunError, UsageError
from recordmill.records.state import FormatError, convert
from recordmill.transforms.dataset.writable import PROBE
from recordmill.transforms.storage import files

MARKER = "of_recordmill"  # in a folder of temporary files: it may be deleted
_TOKEN_BYTES = 8
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)

ContentT = TypeVar("ContentT")


class DamagedStateError(RunError):
    """State of a run that cannot be made anew alone; --overwrite then begins anew."""


class LostFoldersError(RunError):
    """The temporary folders of a run were deleted, or another run has taken them."""


def typed_statistics(content: Any, kind: Any) -> Any:
    """Returns the statistics of a shard, as its description has them, as values of some kind.

    Raises:
      DamagedStateError: they are of another kind.
    """
    try:
        return convert(content, kind)
    except FormatError as error:
        raise wrong_statistics(error) from error


def wrong_statistics(error: Exception) -> DamagedStateError:
    """Returns the error of statistics of a shard that are not what the run wrote."""
    return DamagedStateError(
        f"the statistics of a shard are not what this run wrote: {error}; check the storage and "
        "start anew with --overwrite"
    )


def new_token() -> str:
    """Returns the token of a new plan: 16 hexadecimal digits that nobody can guess."""
    return secrets.token_hex(_TOKEN_BYTES)


def is_token(name: str) -> bool:
    """Tells whether a name is that of a token."""
    return len(name) == 2 * _TOKEN_BYTES and set(name) <= set("0123456789abcdef")


def read_json(path: str) -> Any:
    """Reads a JSON file of the run."""
    return json.loads(files.read_bytes(path))


def pipeline_name(plan_path: str) -> str:
    """Returns the transform of a user's own pipeline that writes a dataset, "" for a command's."""
    with suppress(OSError, *_MALFORMED):
        return str(read_json(plan_path).get("pipeline", ""))
    return ""


def write_json(path: str, content: Any) -> None:
    """Writes a JSON file of the run, whole or not at all."""
    files.write_bytes(path, json.dumps(content, sort_keys=True).encode())


def write_state(path: str, token: str, content: Mapping[str, Any]) -> None:
    """Writes a file of state, whole or not at all."""
    write_json(path, {**content, "run": token})


def parse_state(
    data: bytes, token: str, parse: Callable[[dict[str, Any]], ContentT]
) -> ContentT | None:
    """Returns what a file of state says, None where it is damaged or of another run."""
    try:
        content = json.loads(data)
        if content.pop("run") != token:
            return None
        return parse(content)
    except _MALFORMED:
        return None


def read_state(
    path: str, token: str, parse: Callable[[dict[str, Any]], ContentT]
) -> ContentT | None:
    """Returns what a file of state says, None where it is missing, damaged or of another run.

    Args:
      path: of the file.
      token: of the run.
      parse: makes an object of the JSON; a ValueError, TypeError or KeyError counts as damage.
    """
    try:
        data = files.read_bytes(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return parse_state(data, token, parse)


@dataclass(frozen=True, slots=True)
class Marker:
    """What the marker of a temporary folder says.

    Attributes:
      work: the folder of the plan; "" where the marker is damaged or of an earlier release.
      token: of the run that claimed the folder.
      in_place: the run makes metadata of shards that stay where they are.
    """

    work: str = ""
    token: str = ""
    in_place: bool = False

    @classmethod
    def read(cls, folder: str) -> Marker | None:
        """Returns the marker of a folder, None where there is none."""
        try:
            content = json.loads(files.read_bytes(files.join(folder, MARKER)))
            in_place = content.get("in_place") is True
            return cls(str(content["work"]), str(content["run"]), in_place)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except _MALFORMED:
            return cls()

    def write(self, folder: str) -> None:
        """Claims a folder."""
        content = {"work": self.work} | ({"in_place": True} if self.in_place else {})
        write_state(files.join(folder, MARKER), self.token, content)


def is_own(folder: str, token: str) -> bool:
    """Tells whether a folder is claimed by the run of this token."""
    marker = Marker.read(folder)
    return marker is not None and bool(token) and marker.token == token


def check_claimable(folder: str) -> None:
    """Checks that a folder of temporary files is ours, or holds nothing.

    What a claim leaves that was killed before it wrote its marker counts as nothing.

    Raises:
      UsageError: it holds files of others, belongs to another user, or is a link.
    """
    if files.is_local(folder):
        if os.path.islink(folder):
            raise UsageError(
                f"{folder} is needed for temporary files, and is a link; remove the link, and use "
                "--temp_dir to have temporary files elsewhere"
            )
        if os.path.isdir(folder):
            _check_owner(folder)
    foreign = any(not _is_of_claim(path) for path in files.list_files(folder))
    if foreign and not files.exists(files.join(folder, MARKER)):
        raise UsageError(f"{folder} is needed for temporary files, and holds others; move them")


def _check_owner(folder: str) -> None:
    """Checks that nobody has put a folder under a name that is easy to guess, as in /tmp."""
    above = os.stat(os.path.dirname(os.path.abspath(folder)))
    owner = os.stat(folder).st_uid
    if above.st_mode & stat.S_ISVTX and owner not in (os.geteuid(), above.st_uid):
        raise UsageError(
            f"{folder} is needed for temporary files, and belongs to another user; choose another "
            "--temp_dir"
        )


def _is_of_claim(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith((PROBE, f".{MARKER}."))


def remove_claimed(folder: str) -> None:
    """Deletes a folder that carries our marker, or that holds nothing, the marker last.

    A removal that is killed leaves a folder which is still known to be ours. Links are deleted,
    and not followed.
    """
    if files.is_local(folder) and (os.path.islink(folder) or not os.path.isdir(folder)):
        return
    marker = files.join(folder, MARKER)
    has_marker = files.exists(marker)
    if has_marker:
        files.delete_folder(folder, last=marker)
    elif files.is_local(folder):
        left = files.list_files(folder)
        if all(map(_is_of_claim, left)):
            files.delete_folder(folder)
