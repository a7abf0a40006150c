"""A corpus of any size from a real text, repeated with changes so that no two copies are equal."""

from __future__ import annotations

import pydoc_data.topics
import random
from pathlib import Path

FILE_BYTES = 50_000_000


def pydoc_text() -> str:
    """English text that every Python carries, in BERT's form: a line a sentence."""
    return "\n\n".join(pydoc_data.topics.topics.values())


def _changed(lines: list[str], rng: random.Random) -> str:
    """Exchanges words between lines, and puts new ones in, so that vocabulary and ids differ."""
    words = [word for line in lines[:: max(1, len(lines) // 2000)] for word in line.split()]
    changed = []
    for line in lines:
        if line and rng.random() < 0.3:
            parts = line.split(" ")
            parts[rng.randrange(len(parts))] = rng.choice(words)
            if rng.random() < 0.1:
                parts.append(f"{rng.choice(words)}{rng.randrange(10**6)}")
            line = " ".join(parts)
        changed.append(line)
    return "\n".join(changed)


def make_corpus(folder: Path, text: str, size_bytes: int, file_bytes: int = FILE_BYTES) -> Path:
    """Fills `folder` with files of so many bytes up to `size_bytes`; files that are there stay.

    Texts between blank lines are whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = text.split("\n")
    number = 0
    done = 0
    while done < size_bytes:
        path = folder / f"part-{number:05d}.txt"
        if not path.exists():
            rng = random.Random(number)
            partial = path.with_suffix(".partial")
            with partial.open("w", encoding="utf-8") as out:
                room = min(file_bytes, size_bytes - done)
                while room > 0:
                    copy = _changed(lines, rng) + "\n\n"
                    end = copy.find("\n\n", min(room, len(copy) - 2)) + 2
                    room -= out.write(copy[:end])
            partial.rename(path)
        done += path.stat().st_size
        number += 1
    return folder
