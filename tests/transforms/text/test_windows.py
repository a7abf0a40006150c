from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.text.text_spec import MlmTokens
from recordmill.transforms.text.windows import (
    count_windows,
    fill_windows,
    join_documents,
    plan_windows,
)

from ..splitmix import SplitMix64, mix64
from .chunk_builder import make_chunks

CLS, SEP, SEED = 1, 2, 31


def windows_reference(
    tokens: list[int], hashed: int, copy: int, spec: MlmTokens
) -> list[tuple[list[int], int]]:
    """(tokens, key) of each window over a chunk."""
    rng = SplitMix64(SEED, hashed, copy)
    most = spec.max_seq_length - 2
    found = []
    at = 0
    while True:
        length = most
        if rng.unit() < spec.short_seq_prob:
            length = spec.least_tokens + rng.below(most - spec.least_tokens + 1)
        window = tokens[at : at + length]
        found.append((window, mix64(hashed ^ mix64(len(found) + (copy << 32)))))
        if at + len(window) >= len(tokens):
            return found
        at += len(window) - spec.overlap


def slide(chunks, chosen, copies, spec) -> list[tuple[list[int], int]]:
    chosen, copies = np.array(chosen, np.int64), np.array(copies, np.int64)
    windows = plan_windows(chunks, chosen, copies, spec=spec, seed=SEED)
    ids, lengths = fill_windows(
        chunks, windows, np.arange(len(windows)), spec=spec, cls_id=CLS, sep_id=SEP
    )
    found = []
    for row in range(len(windows)):
        window = ids[row, 1 : lengths[row] - 1].tolist()
        padding = [0] * (spec.max_seq_length - len(window) - 2)
        assert ids[row].tolist() == [CLS, *window, SEP, *padding]
        found.append((window, int(windows.keys[row])))
    return found


specs = st.integers(8, 40).flatmap(
    lambda length: st.integers(0, (length - 2) // 2).flatmap(
        lambda overlap: st.builds(
            MlmTokens,
            max_seq_length=st.just(length),
            overlap_size=st.just(overlap),
            short_seq_prob=st.sampled_from([0.001, 0.1, 0.9, 1.0]),
            min_short_seq_length=st.integers(overlap + 1, length - 2),
        )
    )
)


@settings(max_examples=300, deadline=None)
@given(
    spec=specs,
    sizes=st.lists(st.integers(1, 150), min_size=1, max_size=5),
    copies=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_windows_cover_all_tokens_with_the_overlap(spec, sizes, copies, seed):
    rng = np.random.default_rng(seed)
    texts = [[list(range(1000 * i + 10, 1000 * i + 10 + size))] for i, size in enumerate(sizes)]
    hashes = rng.integers(0, (1 << 64) - 1, len(sizes), np.uint64).tolist()
    chunks = make_chunks(texts, hashes=hashes)
    chosen = [chunk for chunk in range(len(sizes)) for _ in range(copies)]
    copy_of = [*range(copies)] * len(sizes)
    found = slide(chunks, chosen, copy_of, spec)
    at = 0
    for chunk, copy in zip(chosen, copy_of, strict=True):
        expected = windows_reference(texts[chunk][0], hashes[chunk], copy, spec)
        part = found[at : at + len(expected)]
        assert part == expected
        assert len(part) == count_windows(chunks, copy, spec=spec, seed=SEED)[chunk]
        covered: list[int] = []
        for number, (window, _) in enumerate(part):
            assert 1 <= len(window) <= spec.max_seq_length - 2
            if number:
                overlap = spec.overlap
                assert covered[len(covered) - overlap :] == window[:overlap]
                window = window[overlap:]
                assert window
            covered += window
        assert covered == texts[chunk][0]
        at += len(expected)
    assert at == len(found)


def test_full_windows_without_short_ones():
    chunks = make_chunks([[[*range(10, 35)]]])
    spec = MlmTokens(max_seq_length=12, overlap_size=2, short_seq_prob=0)
    assert [window for window, _ in slide(chunks, [0], [0], spec)] == [
        [*range(10, 20)],
        [*range(18, 28)],
        [*range(26, 35)],
    ]


def test_short_windows_are_as_many_as_asked():
    chunks = make_chunks([[[7] * 200_000]])
    spec = MlmTokens(max_seq_length=52, overlap_size=0, short_seq_prob=0.2, min_short_seq_length=11)
    lengths = np.array([len(window) for window, _ in slide(chunks, [0], [0], spec)][:-1])
    assert lengths.min() == 11
    # Of the short ones one in 40 happens to be of full length.
    assert abs((lengths < 50).mean() - 0.2 * 39 / 40) < 0.02


def test_documents_are_joined_by_a_separator():
    chunks = make_chunks([[[10, 11], [12]], [[20]], [[30, 31]]])
    chosen, copies = np.array([2, 0, 1, 1]), np.array([0, 0, 0, 4])
    joined, found = join_documents(chunks, chosen, copies, sep_id=SEP)
    assert found.tolist() == [0, 4]
    assert joined.ids.tolist() == [30, 31, SEP, 10, 11, 12, SEP, 20, 20]
    assert joined.token_counts.tolist() == [8, 1]
    assert joined.token_starts.tolist() == [0, 8]
    assert joined.hashes.tolist() == [int(chunks.hashes[2]), int(chunks.hashes[1])]
    spec = MlmTokens(
        max_seq_length=8, short_seq_prob=0, overlap_size=0, allow_cross_document_examples=True
    )
    assert [window for window, _ in slide(joined, [0, 1], found, spec)] == [
        [30, 31, SEP, 10, 11, 12],
        [SEP, 20],
        [20],
    ]
