from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.text.pairing import count_pairs, fill_pairs, plan_pairs
from recordmill.transforms.text.text_spec import Bert

from ..splitmix import MASK, SplitMix64, mix64
from .chunk_builder import Sentences, make_chunks

CLS, SEP, SEED = 1, 2, 99


@dataclass
class Instance:
    a: list[int]
    b: list[int]
    labels: bool
    key: int


def instances_of_document(
    texts: list[Sentences], documents: list[int], hashes: list[int], chunk: int, copy: int,
    spec: Bert,
) -> list[Instance]:  # fmt: skip
    """create_instances_from_document of google-research/bert; a chunk is its document.

    Partners and truncation draw from a stream of the instance's own, so that counting needs no
    partners, and BERT's search for another document goes on where ten tries are not enough.
    """
    most = spec.max_seq_length - 3
    document = texts[chunk]
    rng = SplitMix64(SEED, hashes[chunk], copy)
    target = 2 + rng.below(most - 1) if rng.unit() < spec.short_seq_prob else most
    instances = []
    gathered: Sentences = []
    i = 0
    while i < len(document):
        gathered.append(document[i])
        if i == len(document) - 1 or sum(map(len, gathered)) >= target:
            a_end = 1 + rng.below(len(gathered) - 1) if len(gathered) >= 2 else 1
            tokens_a = [token for sentence in gathered[:a_end] for token in sentence]
            tokens_b = [token for sentence in gathered[a_end:] for token in sentence]
            key = mix64(hashes[chunk] ^ mix64(len(instances) + (copy << 32)))
            own = SplitMix64(SEED, key, 1)
            labels = False
            if len(gathered) == 1 or rng.unit() < 0.5:
                i -= len(gathered) - a_end
                partner = find_partner(own, documents, chunk)
                if partner is not None:
                    labels = True
                    wanted = target - len(tokens_a)
                    tokens_b = []
                    for sentence in texts[partner][own.below(len(texts[partner])) :]:
                        tokens_b += sentence
                        if len(tokens_b) >= wanted:
                            break
            truncate(own, tokens_a, tokens_b, most)
            instances.append(Instance(tokens_a, tokens_b, labels, key))
            gathered = []
        i += 1
    return instances


def find_partner(rng: SplitMix64, documents: list[int], chunk: int) -> int | None:
    for _ in range(10):
        other = rng.below(len(documents))
        if documents[other] != documents[chunk]:
            return other
    first = rng.below(len(documents))
    for k in range(len(documents)):
        other = (first + k) % len(documents)
        if documents[other] != documents[chunk]:
            return other
    return None


def truncate(rng: SplitMix64, tokens_a: list[int], tokens_b: list[int], most: int) -> None:
    while len(tokens_a) + len(tokens_b) > most:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        if rng.unit() < 0.5:
            del longer[0]
        else:
            longer.pop()


def random_texts(rng: np.random.Generator, chunks: int, *, most_sentences: int = 12) -> list:
    """Texts of tokens that are all different, so that a token tells where it comes from."""
    token = 10
    texts = []
    for _ in range(chunks):
        text = []
        for _ in range(rng.integers(1, most_sentences + 1)):
            length = int(rng.integers(1, 15))
            text.append(list(range(token, token + length)))
            token += length
        texts.append(text)
    return texts


def pair(texts, documents, hashes, chosen, copies, spec):
    chunks = make_chunks(texts, documents=documents, hashes=hashes)
    chosen, copies = np.array(chosen, np.int64), np.array(copies, np.int64)
    pairs = plan_pairs(chunks, chosen, copies, spec=spec, seed=SEED)
    ids, segments, lengths = fill_pairs(
        chunks, pairs, np.arange(len(pairs)), spec=spec, cls_id=CLS, sep_id=SEP
    )
    found = []
    for row in range(len(pairs)):
        a = ids[row, 1 : 1 + pairs.a_lengths[row]].tolist()
        b = ids[row, 2 + len(a) : 2 + len(a) + pairs.b_lengths[row]].tolist()
        length = len(a) + len(b) + 3
        assert lengths[row] == length <= spec.max_seq_length
        padding = [0] * (spec.max_seq_length - length)
        assert ids[row].tolist() == [CLS, *a, SEP, *b, SEP, *padding]
        assert segments[row].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) + padding
        found.append(Instance(a, b, bool(pairs.labels[row]), int(pairs.keys[row])))
    return found


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 8),
    one_document=st.booleans(),
    length=st.sampled_from([8, 9, 20, 64, 128]),
    short=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    copies=st.integers(1, 3),
)
def test_equals_bert_given_its_draws(seed, count, one_document, length, short, copies):
    rng = np.random.default_rng(seed)
    texts = random_texts(rng, count)
    documents = [1] * count if one_document else rng.integers(1, count + 1, count).tolist()
    hashes = rng.integers(0, MASK, count, np.uint64).tolist()
    spec = Bert(max_seq_length=length, max_predictions_per_seq=1, short_seq_prob=short)
    chosen = [chunk for chunk in range(count) for _ in range(copies)]
    copy_of = [*range(copies)] * count
    expected = [
        instance
        for chunk, copy in zip(chosen, copy_of, strict=True)
        for instance in instances_of_document(texts, documents, hashes, chunk, copy, spec)
    ]
    assert pair(texts, documents, hashes, chosen, copy_of, spec) == expected


class TestProperties:
    SPEC = Bert(max_seq_length=64)

    @staticmethod
    def corpus(chunks: int = 600):
        rng = np.random.default_rng(4)
        texts = random_texts(rng, chunks, most_sentences=30)
        documents = rng.integers(1, chunks // 2, chunks).tolist()
        hashes = rng.integers(0, MASK, chunks, np.uint64).tolist()
        return texts, documents, hashes

    def test_labels_tell_where_the_second_segment_is_from(self):
        texts, documents, hashes = self.corpus()
        document_of = {
            token: document
            for text, document in zip(texts, documents, strict=True)
            for sentence in text
            for token in sentence
        }
        found = pair(texts, documents, hashes, range(600), [0] * 600, self.SPEC)
        for instance in found:
            own = {document_of[token] for token in instance.a}
            assert len(own) == 1
            assert instance.a == [*range(instance.a[0], instance.a[-1] + 1)]
            if instance.labels:
                assert {document_of[token] for token in instance.b}.isdisjoint(own)
            elif instance.b:
                assert {document_of[token] for token in instance.b} == own
                assert instance.b[0] > instance.a[-1]
        assert len({instance.key for instance in found}) == len(found)
        share = np.mean([instance.labels for instance in found])
        assert 0.5 < share < 0.62  # half, and all chunks of one sentence

    def test_no_text_of_a_chunk_is_lost_but_by_truncation(self):
        texts, documents, hashes = self.corpus(100)
        spec = Bert(max_seq_length=4096, short_seq_prob=0)
        for chunk, text in enumerate(texts):
            found = pair(texts, documents, hashes, [chunk], [0], spec)
            used = [
                token
                for instance in found
                for token in instance.a + (instance.b if not instance.labels else [])
            ]
            assert used == [token for sentence in text for token in sentence]

    @pytest.mark.parametrize("copy", [0, 1, 9])
    def test_counts_are_those_of_the_plan(self, copy):
        texts, documents, hashes = self.corpus()
        chunks = make_chunks(texts, documents=documents, hashes=hashes)
        counts = count_pairs(chunks, copy, spec=self.SPEC, seed=SEED)
        for chunk in (0, 1, 599):
            assert counts[chunk] == len(pair(texts, documents, hashes, [chunk], [copy], self.SPEC))
        whole = pair(texts, documents, hashes, range(600), [copy] * 600, self.SPEC)
        assert counts.sum() == len(whole)

    def test_a_piece_does_not_depend_on_what_else_is_chosen(self):
        texts, documents, hashes = self.corpus(50)
        alone = pair(texts, documents, hashes, [7], [2], self.SPEC)
        among = pair(texts, documents, hashes, [3, 7, 7, 8], [0, 1, 2, 2], self.SPEC)
        keys = [instance.key for instance in alone]
        assert [instance for instance in among if instance.key in keys] == alone

    def test_copies_differ(self):
        texts, documents, hashes = self.corpus(50)
        first, second = (
            pair(texts, documents, hashes, range(50), [copy] * 50, self.SPEC) for copy in (0, 1)
        )
        assert [(i.a, i.b) for i in first] != [(i.a, i.b) for i in second]

    def test_lengths_are_short_as_often_as_asked(self):
        texts = [[[10] * 61] for _ in range(3000)]
        hashes = np.random.default_rng(1).integers(0, MASK, 3000, np.uint64).tolist()
        spec = Bert(max_seq_length=125, short_seq_prob=0.3)
        partners = pair(texts, list(range(3000)), hashes, range(3000), [0] * 3000, spec)
        # A target above 61 takes two sentences of 61 tokens, and is cut where that is too much.
        assert {len(instance.a) for instance in partners} == {61}
        assert all(instance.labels for instance in partners)

    def test_one_document_has_true_continuations_only(self):
        texts, _, hashes = self.corpus(20)
        found = pair(texts, [5] * 20, hashes, range(20), [0] * 20, self.SPEC)
        assert not any(instance.labels for instance in found)
        alone = pair([[[10, 11]]], [1], [3], [0], [0], self.SPEC)
        assert [(i.a, i.b, i.labels) for i in alone] == [([10, 11], [], False)]

    def test_nothing_chosen(self):
        texts, documents, hashes = self.corpus(6)
        assert pair(texts, documents, hashes, [], [], self.SPEC) == []
