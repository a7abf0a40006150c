"""Cut input files into work items of similar size.

Everything is a stream: neither files nor work items are held in a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from recordmill.transforms.sources.formats import FORMATS, CutOptions, load
from recordmill.transforms.sources.work_items import SourceRange, equal_starts, ranges_at

PartT = TypeVar("PartT")


def cut_source(
    source: SourceRange, target_bytes: int, options: CutOptions
) -> Iterator[SourceRange]:
    """Yields the ranges of a file that `cut_work_items` makes work items of."""
    form = FORMATS[source.format]
    is_small = source.text_bytes <= target_bytes * 3 // 2 and not form.cuts_all
    is_whole = source.most or (source.compression and not form.cuts_packed)
    if not form.cut or is_small or is_whole:
        yield source
        return
    yield from load(form.cut)(source, target_bytes // form.ratio, options)


def cut_by_bytes(
    source: SourceRange, target_bytes: int, options: CutOptions
) -> Iterator[SourceRange]:
    """Yields ranges of about so many bytes of a file whose reader finds where documents begin."""
    starts = equal_starts(source, target_bytes) if options.splittable else [0]
    yield from ranges_at(source, starts)


def cut_work_items(
    sources: Iterable[SourceRange],
    target_bytes: int,
    options: CutOptions = CutOptions(),  # noqa: B008 - it is a tuple
) -> Iterator[list[SourceRange]]:
    """Cuts large files and gathers small ones: work items of about `target_bytes` each."""
    parts = (part for source in sources for part in cut_source(source, target_bytes, options))
    return gather(parts, lambda part: part.text_bytes, target_bytes)


def gather(
    parts: Iterable[PartT], size_of: Callable[[PartT], int], target_bytes: int
) -> Iterator[list[PartT]]:
    """Yields work items of about `target_bytes`, in order: several small parts, or a large one."""
    gathered: list[PartT] = []
    gathered_bytes = 0
    for part in parts:
        size = size_of(part)
        if gathered and gathered_bytes + size > target_bytes:
            yield gathered
            gathered, gathered_bytes = [], 0
        gathered.append(part)
        gathered_bytes += size
    if gathered:
        yield gathered
