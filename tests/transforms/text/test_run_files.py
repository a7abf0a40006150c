from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.shuffle.run_files import (
    MAX_HASH,
    RunFileReader,
    histogram,
    read_run_file,
    write_run_file,
)
from recordmill.transforms.storage import files
from recordmill.transforms.storage.buffers import Arena
from recordmill.transforms.text.chunk_records import (
    decode_chunks,
    encode_chunks,
    id_words,
    sorted_records,
)

from .chunk_builder import make_chunks, texts_of

hash_values = st.one_of(
    st.integers(0, MAX_HASH), st.sampled_from([0, 1, MAX_HASH - 1, MAX_HASH, 1 << 63, 5, 5])
)


def texts_with(ids: st.SearchStrategy[int]):
    sentence = st.lists(ids, min_size=1, max_size=5)
    return st.lists(
        st.tuples(hash_values, st.integers(0, MAX_HASH), st.lists(sentence, max_size=4)),
        max_size=12,
    )


def chunks_of(rows):
    return make_chunks(
        [text for _, _, text in rows],
        hashes=[row[0] for row in rows],
        documents=[row[1] for row in rows],
    )


def rows_of(chunks) -> list:
    hashes, documents = chunks.hashes.tolist(), chunks.documents.tolist()
    return list(zip(hashes, documents, texts_of(chunks), strict=True))


@pytest.mark.parametrize(("vocab_size", "words"), [(2, 1), (65_536, 1), (65_537, 2), (10**6, 2)])
def test_id_words(vocab_size, words):
    assert id_words(vocab_size) == words


def test_ids_lie_in_the_memory_of_an_arena() -> None:
    rows = [(5, 1, [[7, 8], [9]]), (6, 2, [[70_000]])]
    words, _, _ = encode_chunks(chunks_of(rows), 2)
    arena = Arena(1000)
    begin = arena.take(0).ctypes.data
    decoded = decode_chunks([words], [0], [MAX_HASH], 2, arena=arena)
    assert decoded.ids.ctypes.data == begin
    assert rows_of(decoded) == rows_of(decode_chunks([words], [0], [MAX_HASH], 2)) == rows


@settings(max_examples=150, deadline=None)
@given(data=st.data(), words_per_id=st.sampled_from([1, 2]))
def test_round_trip_in_order_of_hash(data, words_per_id):
    rows = data.draw(texts_with(st.integers(0, 65_535 if words_per_id == 1 else 2**31 - 1)))
    words, offsets, order = encode_chunks(chunks_of(rows), words_per_id)
    assert offsets[-1] == len(words)
    decoded = rows_of(decode_chunks([words], [0], [MAX_HASH], words_per_id))
    assert decoded == [rows[i] for i in order.tolist()]
    assert [row[:2] for row in decoded] == sorted(row[:2] for row in rows)


@settings(max_examples=100, deadline=None)
@given(
    slices=st.lists(
        st.tuples(texts_with(st.integers(0, 99)), hash_values, hash_values), max_size=3
    ),
    words_per_id=st.sampled_from([1, 2]),
)
def test_only_hashes_in_the_range_are_decoded(slices, words_per_id):
    words = [encode_chunks(chunks_of(rows), words_per_id)[0] for rows, _, _ in slices]
    low = [min(a, b) for _, a, b in slices]
    high = [max(a, b) for _, a, b in slices]
    expected = [
        row
        for (rows, _, _), first, last in zip(slices, low, high, strict=True)
        for row in sorted(rows, key=lambda row: row[:2])
        if first <= row[0] <= last
    ]
    found = rows_of(decode_chunks(words, low, high, words_per_id))
    assert sorted(found) == sorted(expected)
    assert [row[0] for row in found] == [row[0] for row in expected]


def random_rows(count: int, seed: int) -> list:
    rng = np.random.default_rng(seed)
    return [
        (int(rng.integers(0, MAX_HASH, dtype=np.uint64)), i,
         [rng.integers(0, 30_000, rng.integers(1, 30)).tolist() for _ in range(rng.integers(1, 9))])
        for i in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("every", [1, 1 << 14])
@pytest.mark.parametrize("words_per_id", [1, 2])
def test_ranges_of_a_run_on_disk(tmp_path: Path, monkeypatch, local, every, words_per_id):
    splits = [random_rows(700, 1), [], random_rows(300, 2)]
    histograms = []
    for rows in splits:
        hashes = np.array([row[0] for row in rows], np.uint64)
        histograms.append(histogram(hashes, np.arange(len(rows))))
    path = str(tmp_path / "folder" / "run.bin")
    info = write_run_file(
        path, [sorted_records(chunks_of(rows), words_per_id) for rows in splits], histograms,
        index_every_bytes=every,
    )  # fmt: skip
    run = read_run_file(f"{tmp_path}/folder", info)
    monkeypatch.setattr(files, "is_local", lambda _: local)
    step = MAX_HASH // 50
    for split, rows in enumerate(splits):
        assert run.splits[split].output_bytes.sum() == len(rows) * (len(rows) - 1) // 2
        reader = RunFileReader(run, split, spool_bytes=3000)
        found, words = [], 0
        for low in range(0, MAX_HASH, step):
            high = min(low + step - 1, MAX_HASH)
            data = reader.read(low, high)
            words += len(data)
            found += rows_of(decode_chunks([data], [low], [high], words_per_id))
        assert found == sorted(rows)
        whole = RunFileReader(run, split).read(0, MAX_HASH)
        assert rows_of(decode_chunks([whole], [0], [MAX_HASH], words_per_id)) == sorted(rows)
        if every == 1 and rows:
            # With every record in the index a range brings no more than its neighbours besides.
            assert words < len(whole) * 1.5


def test_histogram_adds_up_by_leading_bits():
    hashes = np.array([0, 1 << 48, (1 << 48) + 7, MAX_HASH, 5], np.uint64)
    cells, sums = histogram(hashes, np.array([1, 10, 100, 1000, 2]))
    assert cells.tolist() == [0, 4, 262_143]
    assert sums.tolist() == [3, 110, 1000]
    cells, sums = histogram(hashes[:0], np.zeros(0, np.int64))
    assert len(cells) == len(sums) == 0


def test_the_same_chunks_give_the_same_bytes(tmp_path: Path):
    rows = random_rows(50, 3)
    contents = []
    for number, order in enumerate((rows, rows[::-1])):
        path = str(tmp_path / f"{number}.bin")
        cells = histogram(np.array([row[0] for row in rows], np.uint64), np.ones(50, np.int64))
        write_run_file(path, [sorted_records(chunks_of(order), 1)], [cells])
        contents.append(Path(path).read_bytes())
    assert contents[0] == contents[1]
