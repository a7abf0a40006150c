"""Files in which a run keeps its state, and whose they are.

Each plan draws a token. The marker of a temporary folder has it, and every file of state, which
ends with a checksum of all that it says: what has another token, is damaged, cut or missing counts
as not done, and is made anew. So files of two runs never mix, and a power loss or a bad disk costs
no more than the work that it hit.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress

import google_crc32c
import msgspec
from msgspec.structs import asdict

from recordmill.records.errors import RunError, UsageError
from recordmill.records.regular_files import NotRegularError
from recordmill.records.state import FormatError, T, decode, encode
from recordmill.transforms.dataset.writable import PROBE
from recordmill.transforms.storage import files

MARKER = "of_recordmill"  # in a folder of temporary files: it may be deleted
_TOKEN_BYTES = 8
_SEAL = re.compile(rb', "crc32c": (\d{1,10})}\n\Z')


class DamagedStateError(RunError):
    """State of a run that cannot be made anew alone; --overwrite then begins anew."""


class LostFoldersError(RunError):
    """The temporary folders of a run were deleted, or another run has taken them."""


def new_token() -> str:
    """Returns the token of a new plan: 16 hexadecimal digits that nobody can guess."""
    return secrets.token_hex(_TOKEN_BYTES)


class _Owner(msgspec.Struct):
    """What every file of state has beside its content: the token of its run."""

    run: str


class PipelinePlan(msgspec.Struct, frozen=True):
    """`plan.json` of a user's own pipeline, which nothing can resume.

    Attributes:
      pipeline: the transform that writes; a command's plan has none.
    """

    pipeline: str = ""


class Nothing(msgspec.Struct, frozen=True):
    """The content of a file of state that is a mark of its run."""


def pipeline_name(plan_path: str) -> str:
    """Returns the transform of a user's own pipeline that writes a dataset, "" for a command's."""
    with suppress(OSError, FormatError):
        return decode_state(files.read_bytes(plan_path), PipelinePlan).pipeline
    return ""


def write_state(path: str, token: str, content: msgspec.Struct) -> None:
    """Writes a file of state, whole or not at all: the fields of a struct, token and checksum."""
    files.write_bytes(path, seal(encode({**asdict(content), "run": token}, indent=None)))


def seal(data: bytes) -> bytes:
    """Returns an object of JSON in one line, with a checksum of it as its last member."""
    return data.removesuffix(b"}\n") + b', "crc32c": %d}\n' % google_crc32c.value(data)


def decode_state(data: bytes, kind: type[T]) -> T:
    """Reads a file of state of any run.

    Raises:
      FormatError: its checksum is of other content, or it is not of this kind.
    """
    found = _SEAL.search(data)
    content = data[: found.start()] + b"}\n" if found else b""
    if found is None or google_crc32c.value(content) != int(found[1]):
        raise FormatError("its checksum is missing, or of other content")
    return decode(content, kind)


def parse_state(data: bytes, token: str, kind: type[T]) -> T | None:
    """Returns what a file of state says, None where it is damaged or of another run."""
    try:
        return decode_state(data, kind) if decode(data, _Owner).run == token else None
    except FormatError:
        return None


def owner_of(path: str) -> str:
    """Returns the token of the run that wrote a file, "" where there is none."""
    with suppress(OSError, FormatError):
        return decode(files.read_bytes(path), _Owner).run
    return ""


def read_state(path: str, token: str, kind: type[T]) -> T | None:
    """Returns what a file of state says, None where it is missing, damaged or of another run.

    Args:
      path: of the file.
      token: of the run.
      kind: the struct that was written; what is not of this kind counts as damage.
    """
    try:
        data = files.read_bytes(path)
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        return None
    return parse_state(data, token, kind)


class Marker(msgspec.Struct, frozen=True):
    """What the marker of a temporary folder says.

    Attributes:
      work: the folder of the plan; "" where the marker is damaged or of an earlier release.
      run: the token of the run that claimed the folder.
      in_place: the run makes metadata of shards that stay where they are.
    """

    work: str = ""
    run: str = ""
    in_place: bool = False

    @classmethod
    def read(cls, folder: str) -> Marker | None:
        """Returns the marker of a folder, None where there is none."""
        try:
            return decode(files.read_bytes(files.join(folder, MARKER)), cls)
        except (FileNotFoundError, NotADirectoryError, NotRegularError):
            return None
        except FormatError:
            return cls()

    def write(self, folder: str) -> None:
        """Claims a folder."""
        files.write_bytes(files.join(folder, MARKER), encode(self, indent=None))


def is_own(folder: str, token: str) -> bool:
    """Tells whether a folder is claimed by the run of this token."""
    marker = Marker.read(folder)
    return marker is not None and bool(token) and marker.run == token


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
