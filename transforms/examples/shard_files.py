"""Files of other tools as shards: their splits and numbers, by --input, names or folders.

As Hugging Face's datasets do: a word such as "train" or "val" in the name of a file, else in that
of a folder above it, names the split, and files without any are of one split, "train".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from recordmill.records.errors import UsageError
from recordmill.records.state import Count
from recordmill.transforms.sources.work_items import SourceRange

_KNOWN = frozenset(
    "train training validation valid val dev eval evaluation test testing unsupervised".split()
)
_WORDS = re.compile(r"[^\W_]+")
_NUMBERED = re.compile(r"(.*?)(\d+)(-of-)(\d+)(.*)", re.DOTALL)
_OF_TFDS = re.compile(r".*-([A-Za-z][A-Za-z0-9_]*)\.tfrecord-\d+-of-\d+")
_OF_TFX = re.compile(r"Split-([A-Za-z][A-Za-z0-9_]*)")
_DEFAULT = "train"
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class ShardFile(SourceRange):
    """A whole file that is a shard, and stays where it is.

    Attributes:
      index, count: its number in its split, and theirs.
    """

    index: Count = 0
    count: Count = 1


def split_of(path: str) -> str:
    """Returns the split that a file's path names, relative to the dataset; "" for none.

    >>> [split_of(p) for p in ("cats-train.tfrecord-00000-of-00002", "val/part-0", "a/b.tfrecord")]
    ['train', 'val', '']
    """
    *folders, name = path.split("/")
    if found := _OF_TFDS.fullmatch(name):
        return found[1]
    for part in (name, *reversed(folders)):
        if found := _OF_TFX.fullmatch(part):
            return found[1]
        words = [word for word in _WORDS.findall(part) if word.lower() in _KNOWN]
        if len(set(words)) == 1:
            return words[0]
    return ""


def _natural(path: str) -> list[tuple[bool, int, str]]:
    """Returns a key by which part-2 comes before part-10."""
    parts = re.split(r"(\d+)", path)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def place_shards(sources: Iterable[SourceRange]) -> list[ShardFile]:
    """Returns files in order of splits and of their numbers.

    Args:
      sources: whole files; the names are relative to the dataset.

    Raises:
      UsageError: some files name a split and others do not, or files of a numbered set lack.
    """
    splits: dict[str, list[SourceRange]] = defaultdict(list)
    for source in sources:
        splits[source.split or split_of(source.name)].append(source)
    if "" in splits:
        if len(splits) > 1:
            raise UsageError(
                f"{splits[''][0].name} names no split, and other files do; name all of them, such "
                "as --input=train=GLOB --input=validation=GLOB"
            )
        splits = {_DEFAULT: splits[""]}
    _check_sets([source.name for files_of in splits.values() for source in files_of])
    placed = []
    for split, of_split in sorted(splits.items(), key=lambda each: (each[0] != _DEFAULT, each[0])):
        of_split.sort(key=lambda source: _natural(source.name))
        for index, source in enumerate(of_split):
            known = {f.name: getattr(source, f.name) for f in fields(SourceRange)}
            shard = ShardFile(**known, index=index, count=len(of_split))
            placed.append(replace(shard, split=split))
    return placed


def _check_sets(names: Sequence[str]) -> None:
    """Checks that of files numbered 00000-of-00010 all are there.

    Raises:
      UsageError: names some that are not.
    """
    sets: dict[tuple[str, str, str], dict[int, int]] = defaultdict(dict)
    for name in names:
        if found := _NUMBERED.fullmatch(name):
            begin, index, _, count, end = found.groups()
            sets[begin, count, end][int(index)] = len(index)
    for (begin, count, end), present in sets.items():
        digits = next(iter(present.values()))
        first = 1 if 0 not in present and int(count) in present else 0
        wanted = range(first, first + int(count))
        lacking = [number for number in wanted[: len(present) + _MOST_NAMED]
                   if number not in present]  # fmt: skip
        if lacking:
            shown = ", ".join(f"{begin}{n:0{digits}d}-of-{count}{end}" for n in lacking[:3])
            more = int(count) - len(present) - len(lacking[:_MOST_NAMED])
            raise UsageError(
                f"--input matches {len(present)} of the {int(count)} files that their names "
                f"promise, and lacks {shown}{' and others' if more > 0 else ''}; copy them there, "
                "or match them too"
            )
