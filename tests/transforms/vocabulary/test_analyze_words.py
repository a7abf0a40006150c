"""The stages that count words, each by itself: exact counts, and the sketch of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pytest

from recordmill.transforms.dataset.tensorflow_loading import load_tensorflow
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import list_sources
from recordmill.transforms.vocabulary.analyze_words import (
    CountWords,
    SketchWords,
    WordCountSpec,
    read_counts,
    read_sketch,
)
from recordmill.transforms.vocabulary.word_counts import SketchSpec

TEXTS = ["the cat saw the dog\n", "a dog, a cat and Zoë\n", "the end\n"]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> WordCountSpec:
    load_tensorflow()
    folder = tmp_path_factory.mktemp("words")
    for i, text in enumerate(TEXTS):
        (folder / f"{i}.txt").write_text(text, encoding="utf-8")
    (folder / "work").mkdir()
    items = [[source] for source in list_sources([f"{folder}/*.txt"])]
    assert write_work_items(f"{folder}/work", items) == len(TEXTS)
    return WordCountSpec(f"{folder}/work", DocumentSpec(), lower_case=True)


def run(stage: beam.PTransform) -> None:
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = pipeline | "WorkItems" >> beam.Create(range(len(TEXTS))) | "Stage" >> stage


def words() -> Counter[str]:
    text = " ".join(TEXTS).replace(",", " , ").replace("Zoë", "zoe")
    return Counter(text.split())


def test_words_and_characters_are_counted_exactly(spec: WordCountSpec) -> None:
    run(CountWords(spec))
    counted, characters = read_counts(spec)
    assert counted == words()
    letters: Counter[str] = Counter()
    for word, count in words().items():
        for letter in word:
            letters[letter] += count
    assert characters == letters


def test_the_sketch_holds_every_word_once(spec: WordCountSpec) -> None:
    sketched = replace(spec, sketch=SketchSpec.for_words(100))
    run(SketchWords(sketched))
    counters = read_sketch(sketched)
    # Each word adds its count to one counter in each of the rows of the sketch.
    assert counters.sum() % words().total() == 0
    assert counters.sum() > 0
    assert np.count_nonzero(counters) >= len(words())


def test_totals_are_those_of_all_work_items(spec: WordCountSpec) -> None:
    from apache_beam.testing.util import assert_that, equal_to

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        totals = (
            pipeline
            | "WorkItems" >> beam.Create(range(len(TEXTS)))
            | "Count" >> CountWords(replace(spec, lower_case=False))
            | "Numbers" >> beam.Map(lambda total: (total.documents, total.words))
        )
        assert_that(totals, equal_to([(len(TEXTS), words().total())]))
