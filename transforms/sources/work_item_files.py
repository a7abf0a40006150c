"""The work items of a job on disk, each with the input ranges that it reads.

Stages exchange only the numbers of work items. The ranges are on disk, so a restarted job does the
same work items on any engine and with any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import TypeVar

import orjson

from recordmill.records.state import Count, decode
from recordmill.transforms.dataset.run_state import DamagedStateError
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files

_ITEMS_PER_FILE = 256

SourceRangeT = TypeVar("SourceRangeT", bound=SourceRange)


def write_work_items(work: str, items: Iterable[Sequence[SourceRange]]) -> int:
    """Writes the work items, some hundred to a file, and where each begins; returns their number.

    A work item of a million small files is long, so writers and readers hold one at a time.
    """
    rest = iter(items)
    count = 0
    for first in rest:
        path = _items_path(work, count)
        begins = [0]
        with files.writing(f"{path}.jsonl") as handle:
            for item in chain([first], islice(rest, _ITEMS_PER_FILE - 1)):
                line = orjson.dumps(item) + b"\n"
                handle.write(line)
                begins.append(begins[-1] + len(line))
        files.write_bytes(f"{path}.json", orjson.dumps(begins))
        count += len(begins) - 1
    files.write_bytes(_count_path(work), orjson.dumps(count))
    return count


def read_work_item_count(work: str) -> int:
    """Returns the number of work items.

    Raises:
      DamagedStateError: it is missing or damaged.
    """
    path = _count_path(work)
    try:
        return decode(files.read_bytes(path), Count)
    except (FileNotFoundError, ValueError) as error:
        raise DamagedStateError(
            f"{path} is missing or damaged; start anew with --overwrite"
        ) from error


def read_work_item(work: str, number: int) -> list[SourceRange]:
    """Returns the input ranges of one work item.

    Raises:
      DamagedStateError: they are missing or damaged.
    """
    return read_ranges(work, number, SourceRange)


def read_ranges(work: str, number: int, kind: type[SourceRangeT]) -> list[SourceRangeT]:
    """Returns the input ranges of one work item.

    Args:
      work: the folder that they were written to.
      number: of the work item.
      kind: of its ranges.

    Raises:
      DamagedStateError: they are missing or damaged.
    """
    path = _items_path(work, number)
    try:
        begins = decode(files.read_bytes(f"{path}.json"), list[Count])
        begin, end = begins[number % _ITEMS_PER_FILE :][:2]
        line = files.read_bytes(f"{path}.jsonl", begin, end - begin)
        return decode(line, list[kind])  # type: ignore[valid-type]
    except (FileNotFoundError, ValueError) as error:
        raise DamagedStateError(
            f"{path}.jsonl is missing or damaged; start anew with --overwrite"
        ) from error


def _count_path(work: str) -> str:
    return files.join(work, "work-items", "count.json")


def _items_path(work: str, number: int) -> str:
    return files.join(work, "work-items", f"items-{number // _ITEMS_PER_FILE:06d}")
