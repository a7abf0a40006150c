"""An objective with its tokenizer: `bind` finds the special ids, and makes what a worker calls."""

from __future__ import annotations

from collections.abc import Callable

from recordmill.records.errors import UsageError
from recordmill.records.noise import default_sentinel_ids
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.subwords.tokenizer import Tokenizer
from recordmill.transforms.text.causal import CausalObjective
from recordmill.transforms.text.classification import ClassifyObjective
from recordmill.transforms.text.denoising import CorruptionObjective, CorruptionTokensObjective
from recordmill.transforms.text.fill_in_middle import FimIds
from recordmill.transforms.text.objective import Objective, check_special_tokens, special_id
from recordmill.transforms.text.objectives import BertObjective, MlmObjective, MlmTokensObjective
from recordmill.transforms.text.packed_mlm import PackedMlmObjective
from recordmill.transforms.text.text_spec import (
    T5,
    AnyObjective,
    Bert,
    Classify,
    Gpt,
    Mlm,
    MlmTokens,
    T5Tokens,
    Ul2,
)

# Prefix, suffix and middle, as code models spell them.
_FIM_SPELLINGS = (
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<PRE>", "<SUF>", "<MID>"),
)


def _end_of_text(spec: Gpt | T5 | T5Tokens | Ul2, tokenizer: Tokenizer) -> int:
    """Returns the id behind documents: of BERT's vocabularies that of [SEP].

    Raises:
      UsageError: the tokenizer has none, or not the one that was given.
    """
    if spec.eos_id is not None:
        if spec.eos_id >= len(tokenizer):
            raise UsageError(
                f"--eos_id must be one of the {len(tokenizer)} ids of {tokenizer.source}, got "
                f"{spec.eos_id}"
            )
        return spec.eos_id
    known = tokenizer.special
    if known.end_of_text_id is None and known.sep_id is not None:
        return known.sep_id
    return special_id(tokenizer, "end_of_text_id")


def _fim_ids(tokenizer: Tokenizer, end_id: int) -> FimIds:
    """Returns the ids of prefix, suffix and middle.

    Raises:
      UsageError: the tokenizer lacks them.
    """
    for spellings in _FIM_SPELLINGS:
        if all(token in tokenizer.ids for token in spellings):
            prefix, suffix, middle = (tokenizer.ids[token] for token in spellings)
            return FimIds(prefix, suffix, middle, end_id)
    raise UsageError(
        f"--fim_rate needs a tokenizer with {', '.join(_FIM_SPELLINGS[0])}, and {tokenizer.source} "
        "lacks them; add them to it, or leave --fim_rate out"
    )


def _sentinel_ids(spec: T5 | Ul2, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns the ids of the first span of a row, the second, …

    They are the tokenizer's `<extra_id_0>`, …; without any they descend from the last of 100 ids
    behind the vocabulary, as T5 and seqio have them.
    """
    if spec.first_sentinel_id is not None:
        last = max(0, spec.first_sentinel_id - spec.corruption.most_spans)
        return tuple(range(spec.first_sentinel_id, last - 1, -1))
    known = tokenizer.special.sentinel_ids
    if known:
        return known
    return default_sentinel_ids(len(tokenizer))


def _mode_ids(spec: T5 | Ul2, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns the id that begins the inputs of each denoiser, () for none.

    Raises:
      UsageError: the tokenizer lacks a token.
    """
    corruption, found = spec.corruption, []
    for token in corruption.mode_tokens:
        known = int(token) if token.isdecimal() else tokenizer.ids.get(token, -1)
        if not 0 <= known < 1 << 31:
            raise UsageError(
                f"--mode_tokens must be tokens of {tokenizer.source} or ids below 2**31, and it "
                f"has no {token}; add it to the tokenizer, or give the id of an unused token"
            )
        found.append(known)
    return tuple(found[mode] for mode in corruption.modes) if found else ()


def _bert(
    spec: Bert, vocabulary: Tokenizer, seed: int, row: RowSpec, classes: tuple[str, ...]
) -> Objective:
    del row, classes
    return BertObjective(vocabulary, seed, spec.dupe_factor, spec)


def _mlm(
    spec: Mlm, vocabulary: Tokenizer, seed: int, row: RowSpec, classes: tuple[str, ...]
) -> Objective:
    del classes
    if spec.packing != "none":
        return PackedMlmObjective(vocabulary, seed, spec.dupe_factor, spec)
    return MlmObjective(vocabulary, seed, spec.dupe_factor, spec, row.keep_fields)


def _mlm_tokens(
    spec: MlmTokens, vocabulary: Tokenizer, seed: int, row: RowSpec, classes: tuple[str, ...]
) -> Objective:
    del classes
    return MlmTokensObjective(vocabulary, seed, spec.dupe_factor, spec, row.keep_fields)


def _classify(
    spec: Classify, vocabulary: Tokenizer, seed: int, row: RowSpec, classes: tuple[str, ...]
) -> Objective:
    del seed  # nothing is drawn
    return ClassifyObjective(vocabulary, spec.dupe_factor, spec, row, classes)


def _gpt(
    spec: Gpt, vocabulary: Tokenizer, seed: int, row: RowSpec, classes: tuple[str, ...]
) -> Objective:
    del classes
    end_id = _end_of_text(spec, vocabulary)
    pad_id = _first(spec.pad_id, vocabulary.special.pad_id, end_id)
    fim_ids = _fim_ids(vocabulary, end_id) if spec.fim_rate else None
    return CausalObjective(
        vocabulary, seed, spec.dupe_factor, spec, row, pad_id, end_id, fim_ids,
    )  # fmt: skip


def _corrupted(
    spec: T5 | Ul2, vocabulary: Tokenizer, seed: int, row: RowSpec, classes: tuple[str, ...]
) -> Objective:
    del classes
    end_id = _end_of_text(spec, vocabulary)
    pad_id = _first(spec.pad_id, vocabulary.special.pad_id, 0)
    start_id = _first(spec.decoder_start_id, vocabulary.special.begin_of_text_id, pad_id)
    return CorruptionObjective(
        vocabulary, seed, spec.dupe_factor, spec, row, pad_id, _document_end(spec, end_id), end_id,
        start_id, _sentinel_ids(spec, vocabulary), _mode_ids(spec, vocabulary),
    )  # fmt: skip


def _t5_tokens(
    spec: T5Tokens, vocabulary: Tokenizer, seed: int, row: RowSpec, classes: tuple[str, ...]
) -> Objective:
    del classes
    end_id = _document_end(spec, _end_of_text(spec, vocabulary))
    pad_id = _first(None, vocabulary.special.pad_id, 0)
    return CorruptionTokensObjective(vocabulary, seed, spec.dupe_factor, spec, row, pad_id, end_id)


def _document_end(spec: T5 | T5Tokens | Ul2, end_id: int) -> int | None:
    """Returns the id behind documents: in rows of several of them each has its end."""
    return None if spec.packing == "none" else end_id


def _first(given: int | None, known: int | None, usual: int) -> int:
    found = known if given is None else given
    return usual if found is None else found


_BINDERS: dict[type[AnyObjective], Callable[..., Objective]] = {
    Bert: _bert, Mlm: _mlm, MlmTokens: _mlm_tokens, Classify: _classify, Gpt: _gpt,
    T5: _corrupted, T5Tokens: _t5_tokens, Ul2: _corrupted,
}  # fmt: skip


def bind(
    spec: AnyObjective,
    vocabulary: Tokenizer,
    seed: int,
    row: RowSpec,
    classes: tuple[str, ...] = (),
) -> Objective:
    """Returns an objective with its vocabulary.

    Args:
      spec: its options.
      vocabulary: that ids are of.
      seed: of every random choice.
      row: what is read of records beside their text.
      classes: the names of class 0, 1, …, once the input was read.

    Raises:
      UsageError: the tokenizer lacks a special token that the objective needs.
    """
    check_special_tokens(vocabulary, spec.name)
    return _BINDERS[type(spec)](spec, vocabulary, seed, row, classes)
