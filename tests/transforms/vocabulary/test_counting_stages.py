"""The stages that count words, each by itself: exact counts, and the sketch of them."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recordmill.transforms.dataset.stages import do_here
from recordmill.transforms.dataset.worker_pool import WorkerPool
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import list_sources
from recordmill.transforms.vocabulary import counting_stages as stages
from recordmill.transforms.vocabulary.counting_stages import (
    AddSketches,
    SketchWords,
    WordCountSpec,
    counting_stages,
    read_counts,
    read_passing,
)
from recordmill.transforms.vocabulary.word_counts import SketchSpec

TEXTS = ["the cat saw the dog\n", "a dog, a cat and Zoë\n", "the end\n"]


@pytest.fixture
def spec(tmp_path: Path) -> WordCountSpec:
    for i, text in enumerate(TEXTS):
        (tmp_path / f"{i}.txt").write_text(text, encoding="utf-8")
    (tmp_path / "work").mkdir()
    items = [[source] for source in list_sources([f"{tmp_path}/*.txt"])]
    count = write_work_items(f"{tmp_path}/work", items)
    assert count == len(TEXTS)
    return WordCountSpec(f"{tmp_path}/work", count, DocumentSpec(), lower_case=True)


def run(spec: WordCountSpec, workers: int = 0) -> None:
    with WorkerPool(workers) if workers else nullcontext() as pool:
        do_here(counting_stages(spec), pool)


def words() -> Counter[str]:
    text = " ".join(TEXTS).replace(",", " , ").replace("Zoë", "zoe")
    return Counter(text.split())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("files", [1, 2, 64])
def test_words_and_characters_are_counted_exactly(
    spec: WordCountSpec, monkeypatch: pytest.MonkeyPatch, workers: int, files: int
) -> None:
    monkeypatch.setattr(stages, "_MOST_FILES", files if not workers else 64)
    run(spec, workers)
    counted, characters, totals = read_counts(spec)
    assert counted == words()
    assert list(counted)[:3] == ["the", "a", "cat"]
    letters: Counter[str] = Counter()
    for word, count in words().items():
        for letter in word:
            letters[letter] += count
    assert characters == letters
    assert (totals.documents, totals.words) == (len(TEXTS), words().total())


def test_the_sketch_holds_every_word_once(spec: WordCountSpec) -> None:
    sketched = replace(spec, sketch=SketchSpec.for_words(100))
    parts = [SketchWords(sketched), AddSketches(sketched)]
    for stage in parts:
        for item in range(stage.items()):
            stage.do(item)
            stage.do(item)  # as an engine that repeats it
    threshold, packed = read_passing(sketched)
    assert threshold == 1  # all counters may stay
    # Each word has a counter in each of the rows of the sketch.
    assert np.unpackbits(packed).sum() >= len(words())


def test_rare_words_are_left_out(spec: WordCountSpec) -> None:
    sketched = replace(spec, sketch=SketchSpec(1))
    run(sketched)
    counted, _, _ = read_counts(sketched)
    threshold, _ = read_passing(sketched)
    assert threshold > 1
    assert counted == {word: n for word, n in words().items() if n >= threshold}
