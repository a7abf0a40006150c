from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.text.cleaning import minhash
from recordmill.transforms.text.cleaning.comparison import (
    Clusters,
    distinct,
    places_of,
    similar_documents,
)
from recordmill.transforms.text.cleaning.minhash import MinHasher, choose_bands, most_differing

from ....kernels import entrance
from .test_exact_hashes import batch_of

WORDS = [f"{a}{b}" for a in "bcdfghjklm" for b in ("a", "el", "in", "or", "ut")]


def jaccard(a: str, b: str) -> float:
    """The similarity of word 5-grams."""

    def ngrams(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"[a-z0-9]+", text.lower())
        return {tuple(words[i : i + 5]) for i in range(max(1, len(words) - 4))}

    one, other = ngrams(a), ngrams(b)
    return len(one & other) / len(one | other)


def signed(texts: list[str], threshold: float = 0.8) -> np.ndarray:
    """`[num_texts, bands + 4] uint64`; each text has words."""
    chosen, hashes = MinHasher(threshold).add(batch_of([[t] for t in texts]), goes_on=False)
    assert chosen.tolist() == list(range(len(texts)))
    return hashes


def pairs_of(texts: list[str], threshold: float = 0.8) -> set[tuple[int, int]]:
    """The pairs of texts that are found to be similar, the later one first."""
    hasher = MinHasher(threshold)
    chosen, hashes = hasher.add(batch_of([[t] for t in texts]), goes_on=False)
    rows = hasher.rows(chosen.astype(np.uint64), hashes)
    pairs = similar_documents(rows, most_differing(threshold))
    return {(int(a), int(b)) for a, b in pairs.tolist()}


def changed(text: str, share: float, rng: random.Random) -> str:
    """The text with so many of its words replaced, one after the other at one place."""
    words = text.split()
    count = round(len(words) * share)
    at = rng.randrange(len(words) - count)
    words[at : at + count] = [f"new{rng.randrange(10**6)}" for _ in range(count)]
    return " ".join(words)


@pytest.mark.parametrize(
    ("threshold", "wanted"),
    [(0.5, (37, 3)), (0.7, (22, 5)), (0.8, (14, 8)), (0.9, (8, 13)), (1.0, (1, 112))],
)
def test_bands_are_those_of_the_threshold(threshold: float, wanted: tuple[int, int]) -> None:
    assert choose_bands(threshold) == wanted


def test_case_punctuation_and_line_ends_do_not_matter() -> None:
    same = [
        "The cat, it sat on the mat; and so on.", "the cat it sat on the mat and so on",
        "THE CAT — it sat “on the mat”\u00a0and so on!",
    ]  # fmt: skip
    hashes = signed(same)
    assert (hashes == hashes[0]).all()
    lines = batch_of([["The cat it", "sat on the mat and", "so on"]])
    assert (MinHasher(0.8).add(lines, goes_on=False)[1] == hashes[0]).all()


def test_characters_are_words_where_no_spaces_are() -> None:
    text = "機械学習のための大規模なテキストコーパスを作成するツールです"
    other = text.replace("大規模な", "小さい", 1)
    assert pairs_of([text, other], 0.3) == {(1, 0)}
    assert not pairs_of([text, "まったく違う内容の短い文章をここに書いておきます"], 0.3)
    punctuated = signed(["学習，のため。の大規模", "学習のための大規模"])
    assert (punctuated[0] == punctuated[1]).all()


def test_words_beyond_ascii_count_as_they_are() -> None:
    hashes = signed(["schöne große Häuser am Fluß", "schone groe Hauser am Flu"])
    assert (hashes[0] != hashes[1]).any()


def test_few_words_are_one_ngram() -> None:
    assert pairs_of(["yes", "Yes!", "no", "yes no", "yes no"]) == {(1, 0), (4, 3)}
    chosen, _ = MinHasher(0.8).add(batch_of([["..."], [], ["a"]]), goes_on=False)
    assert chosen.tolist() == [2]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_document_in_parts_has_the_signature_of_the_whole(cut: int) -> None:
    lines = ["one two three", "four", "five six seven", "eight nine"]
    hasher = MinHasher(0.8)
    first, _ = hasher.add(batch_of([lines[:cut]]), goes_on=True)
    assert not len(first)
    _, hashes = hasher.add(batch_of([lines[cut:], ["x"]], continues=True), goes_on=False)
    assert hashes[0].tobytes() == signed([" ".join(lines)])[0].tobytes()


def test_the_similarity_of_pairs_is_estimated_without_bias() -> None:
    """Two bits of 112 hashes: the mean over many pairs is near the true similarity."""
    rng = random.Random(0)
    differing_hashes = entrance(minhash.differing_hashes)

    for share in (0.05, 0.2):
        true, estimated = [], []
        for _ in range(60):
            text = " ".join(rng.choice(WORDS) for _ in range(300))
            other = changed(text, share, rng)
            true.append(jaccard(text, other))
            sketches = np.ascontiguousarray(signed([text, other])[:, -4:])
            estimated.append(1 - differing_hashes(sketches, 0, 1, 0) / 112 * 4 / 3)
        assert np.mean(estimated) == pytest.approx(np.mean(true), abs=0.025)


def test_planted_duplicates_are_found_and_others_are_not() -> None:
    """Recall of pairs of 90 % similarity, precision against pairs of 50 %."""
    rng = random.Random(1)
    texts, similar, unlike = [], set(), set()
    for i in range(0, 900, 3):
        text = " ".join(rng.choice(WORDS) for _ in range(200))
        texts += [text, changed(text, 0.035, rng), changed(text, 0.32, rng)]
        assert 0.88 < jaccard(texts[i], texts[i + 1]) < 0.96
        assert 0.4 < jaccard(texts[i], texts[i + 2]) < 0.6
        similar.add((i + 1, i))
        unlike |= {(i + 2, i), (i + 2, i + 1)}
    found = pairs_of(texts)
    assert len(found & similar) >= 0.99 * len(similar)
    assert len(found & unlike) <= 0.01 * len(unlike)
    assert found <= similar | unlike


def test_a_bucket_of_equal_documents_is_a_star() -> None:
    assert pairs_of(["the same five words here"] * 5) == {(i, 0) for i in range(1, 5)}


def test_clusters_keep_the_first_in_any_order_of_pairs() -> None:
    pairs = [(5, 3), (9, 5), (4, 1), (12, 9), (8, 4)]
    documents = distinct(np.array(pairs, np.uint64).reshape(-1, 1))
    wanted = [[4, 1], [5, 3], [8, 1], [9, 3], [12, 3]]
    for order in itertools.permutations(pairs):
        clusters = Clusters(documents)
        for pair in order:
            clusters.join(np.array([pair], np.uint64))
        assert clusters.repeats().tolist() == wanted


def test_ranks_come_before_numbers() -> None:
    texts = ["the same five words here", "another five words are here", "the same five words here"]
    hasher = MinHasher(0.8)
    chosen, hashes = hasher.add(batch_of([[t] for t in [*texts, *texts]]), goes_on=False)
    rows = hasher.rows(chosen.astype(np.uint64), hashes)
    # The first halves of the ranks of equal texts are equal, so the second ones decide.
    ranks = np.array([[7, 9], [1, 1], [7, 8], [7, 5], [1, 1], [7, 4]], np.uint64)
    ranked = np.column_stack([rows, ranks[rows[:, 1].astype(np.int64)]])
    assert places_of(ranked, rows.shape[1])[0].tolist() == [7, 9, 0]
    for order in (slice(None), slice(None, None, -1)):
        pairs = similar_documents(ranked[order], most_differing(0.8))
        found = {(int(later[2]), int(first[2])) for later, first in pairs.reshape(-1, 2, 3)}
        assert found == {(0, 5), (2, 5), (3, 5), (4, 1)}
        clusters = Clusters(distinct(pairs.reshape(-1, 3)))
        clusters.join(pairs)
        assert clusters.repeats().tolist() == [[0, 5], [2, 5], [3, 5], [4, 1]]


@given(st.lists(st.tuples(*[st.sampled_from([0, 1, 2, 1 << 63, (1 << 64) - 1])] * 3), max_size=30))
def test_places_in_order(places: list[tuple[int, ...]]) -> None:
    found = distinct(np.array(places, np.uint64).reshape(-1, 3))
    assert [tuple(row) for row in found.tolist()] == sorted(set(places))
