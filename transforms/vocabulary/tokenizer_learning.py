"""Tokenizer files from word counts: of WordPiece, of byte-level BPE and of Unigram."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

from recordmill.records.errors import RunError
from recordmill.transforms.subwords.byte_pairs import byte_letters
from recordmill.transforms.subwords.hugging_face import byte_level_file
from recordmill.transforms.vocabulary.pair_learning import learn_merges
from recordmill.transforms.vocabulary.vocab_spec import AnyKind, BytePairSpec, UnigramSpec
from recordmill.transforms.vocabulary.word_cutting import LOWER_CASE_JSON, unigram_rule
from recordmill.transforms.vocabulary.wordpiece_learning import choose_words, learn_vocabulary

_MARK = "▁"
_MAX_PIECE_BYTES = 4000  # SentencePiece leaves out longer lines of its input


@dataclass(frozen=True, slots=True)
class LearnedTokenizer:
    """A new tokenizer.

    Attributes:
      data: its file.
      tokens: how many it has.
      chosen_words: the number of distinct words that they were learned from.
    """

    data: bytes
    tokens: int
    chosen_words: int


def learn_tokenizer(
    words: dict[str, int],
    characters: dict[str, int],
    spec: AnyKind,
) -> LearnedTokenizer:
    """Returns the tokenizer that a spec asks for; the same for any order of the counts.

    Args:
      words: counts by word, as `word_counter` and `key_of` give them for the kind of the spec.
      characters: counts of single characters; not of BPE, whose symbols are bytes.
      spec: the tokenizer wanted.

    Raises:
      RunError: there is too little text for it.
    """
    if isinstance(spec, BytePairSpec):
        return _learn_byte_pairs(words, spec)
    if isinstance(spec, UnigramSpec):
        return _learn_unigram(words, characters, spec)
    chosen = choose_words(words, characters, spec)
    tokens = learn_vocabulary(chosen, spec)
    return LearnedTokenizer(
        "".join(f"{token}\n" for token in tokens).encode(), len(tokens), len(chosen)
    )


def _most_frequent(counts: dict[str, int], most: int) -> list[tuple[str, int]]:
    """Returns (word, count) by count, then word."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]


def _learn_byte_pairs(words: dict[str, int], spec: BytePairSpec) -> LearnedTokenizer:
    chosen = _most_frequent(words, spec.most_words)
    byte_of = byte_letters()
    letter_of = {byte: letter for letter, byte in byte_of.items()}
    special = list(spec.first_tokens)
    # No merge may make a special token, which would then be found in text. Text is in letters here.
    taken = [
        bytes(byte_of[letter] for letter in token) if byte_of.keys() >= set(token) else b""
        for token in special
    ]
    tokens, merges = learn_merges(
        [(bytes(map(byte_of.__getitem__, word)), count) for word, count in chosen],
        vocab_size=spec.vocab_size,
        special=taken,
        byte_order=[byte_of[letter] for letter in sorted(byte_of)],
        min_count=spec.min_count,
    )
    spelled = [*special, *("".join(map(letter_of.__getitem__, t)) for t in tokens[len(special) :])]
    vocab = {token: i for i, token in enumerate(spelled)}
    pairs = [f"{spelled[left]} {spelled[right]}" for left, right in merges]
    normalizer = LOWER_CASE_JSON if spec.do_lower_case else None
    content = byte_level_file(vocab, pairs, special) | {"normalizer": normalizer}
    data = json.dumps(content, ensure_ascii=False, indent=1).encode()
    return LearnedTokenizer(data, len(vocab), len(chosen))


def _choose_marked(
    words: dict[str, int], characters: dict[str, int], spec: UnigramSpec
) -> list[tuple[str, int]]:
    """Returns words without their "▁", and characters that none of them has, by count."""
    letters = {char: count for char, count in characters.items() if char != _MARK}
    kept = {char for char, _ in _most_frequent(letters, spec.characters)}
    bodies: dict[str, int] = {}
    for word, count in words.items():
        body = word.lstrip(_MARK)
        if body and kept.issuperset(body) and len(body.encode()) < _MAX_PIECE_BYTES:
            bodies[body] = bodies.get(body, 0) + count
    chosen = _most_frequent(bodies, spec.most_words)
    covered = set().union(*(word for word, _ in chosen))
    return chosen + [(char, letters[char]) for char in sorted(kept - covered)]


def _learn_unigram(
    words: dict[str, int], characters: dict[str, int], spec: UnigramSpec
) -> LearnedTokenizer:
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    chosen = _choose_marked(words, characters, spec)
    special = list(spec.first_tokens)
    own = {"<unk>": "unk", "<s>": "bos", "</s>": "eos", "<pad>": "pad"}
    ids: dict[str, Any] = {
        f"{name}_id": special.index(token) if token in special else -1
        for token, name in own.items()
    }
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{count}" for word, count in chosen), model_writer=model,
            input_format="tsv", model_type="unigram", vocab_size=spec.vocab_size,
            hard_vocab_limit=False, character_coverage=1.0,
            normalization_rule_name=unigram_rule(lower_case=spec.do_lower_case),
            control_symbols=[token for token in special if token not in own], **ids,
            num_threads=1,  # sums of floats depend on how many there are
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        raise RunError(
            f"SentencePiece finds too little text for a Unigram of {spec.vocab_size} tokens in "
            f"{len(chosen)} words; give more --input, or another --vocab_size ({error})"
        ) from error
    data = model.getvalue()
    size = int(SentencePieceProcessor(model_proto=data).vocab_size())
    return LearnedTokenizer(data, size, len(chosen))
