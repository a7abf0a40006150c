"""Files of image references: a plan writes them in order of rank, and builders read slices."""

from __future__ import annotations

from collections.abc import Iterable

from recordmill.transforms.dataset.run_state import DamagedStateError
from recordmill.transforms.images.references import ImageReference
from recordmill.transforms.storage import files

ROWS_PER_FILE = 512


def _path(work: str, split: int, number: int) -> str:
    return files.join(work, "images", f"split-{split}", f"images-{number:06d}.jsonl")


def write_references(work: str, split: int, number: int, lines: Iterable[str]) -> None:
    """Writes one file of references: those from rank `number * ROWS_PER_FILE` on."""
    text = "".join(f"{line}\n" for line in lines)
    files.write_bytes(_path(work, split, number), text.encode())


class ReferenceWriter:
    """Writes the references of a split in files of equal numbers of lines.

    Args:
      work: the job's folder of temporary files.
      split: the number of the split.
    """

    def __init__(self, work: str, split: int) -> None:
        self._work = work
        self._split = split
        self._lines: list[str] = []
        self._files = 0

    def add(self, line: str) -> None:
        """Adds the reference of the next rank."""
        self._lines.append(line)
        if len(self._lines) == ROWS_PER_FILE:
            self.close()

    def close(self) -> None:
        """Writes the lines that are not written yet."""
        if self._lines:
            write_references(self._work, self._split, self._files, self._lines)
            self._files += 1
            self._lines = []


class ReferenceFiles:
    """Reads the references of a split by rank.

    Holds one file per copy, because slots of different copies walk through different ranks.
    """

    def __init__(self, work: str, split: int) -> None:
        self._work = work
        self._split = split
        self._held: dict[int, tuple[int, list[bytes]]] = {}

    def read(self, rank: int, copy: int) -> ImageReference:
        """Returns the reference of a rank, from the file held for this copy where it is in it.

        Raises:
          DamagedStateError: the file is missing or damaged.
        """
        number, row = divmod(rank, ROWS_PER_FILE)
        path = _path(self._work, self._split, number)
        try:
            if self._held.get(copy, (-1, []))[0] != number:
                self._held[copy] = (number, files.read_bytes(path).split(b"\n"))
            return ImageReference.from_line(self._held[copy][1][row])
        except (FileNotFoundError, ValueError, TypeError, LookupError) as error:
            raise DamagedStateError(
                f"{path} is missing or damaged; start anew with --overwrite"
            ) from error
