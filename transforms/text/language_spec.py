"""Options of language models (`gpt`, `t5`, `t5_tokens`, `ul2`), and their special ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from recordmill.records.errors import UsageError
from recordmill.records.noise import default_sentinel_ids
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.subwords.hugging_face import JsonTokenizer, library_lines
from recordmill.transforms.subwords.tokenizer import Tokenizer
from recordmill.transforms.text.causal import CausalObjective, CausalSpec
from recordmill.transforms.text.corruption import CorruptionSpec
from recordmill.transforms.text.denoising import CorruptionObjective, CorruptionTokensObjective
from recordmill.transforms.text.fill_in_middle import FimIds
from recordmill.transforms.text.objective import Objective, special_id

# Prefix, suffix and middle, as code models spell them.
_FIM_SPELLINGS = (
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<PRE>", "<SUF>", "<MID>"),
)


@dataclass(frozen=True, slots=True)
class LanguageSpec:
    """Options of language models.

    Attributes:
      causal: of `gpt`.
      corruption: of the others.
      form: of `t5` and `ul2`, one of CORRUPTION_FORMATS.
      pad_id, end_id: where they are not those of the tokenizer.
      first_sentinel_id: from which on sentinels descend, where they are not those of the tokenizer.
      decoder_start_id: that decoder inputs begin with, where it is not the tokenizer's.
    """

    causal: CausalSpec = field(default_factory=CausalSpec)
    corruption: CorruptionSpec = field(default_factory=CorruptionSpec)
    form: str = "seqio"
    pad_id: int | None = None
    end_id: int | None = None
    first_sentinel_id: int | None = None
    decoder_start_id: int | None = None

    def __post_init__(self) -> None:
        flags = {
            "pad_id": self.pad_id,
            "eos_id": self.end_id,
            "first_sentinel_id": self.first_sentinel_id,
            "decoder_start_id": self.decoder_start_id,
        }
        for name, given in flags.items():
            if given is not None and not 0 <= given < 1 << 31:
                raise UsageError(f"--{name} must be in [0, 2**31), got {given}")

    def row_tokens(self, name: str) -> int:
        """The most tokens of a row of an objective."""
        return self.causal.row_tokens if name == "gpt" else self.corruption.raw_length

    def is_padded(self, name: str) -> bool:
        """Whether the examples of an objective are padded to one length."""
        if name == "gpt":
            return self.causal.form != "seqio"
        return name != "t5_tokens" and self.form != "seqio"


def end_of_text(spec: LanguageSpec, tokenizer: Tokenizer) -> int:
    """Returns the id behind documents: of BERT's vocabularies that of [SEP].

    Raises:
      UsageError: the tokenizer has none, or not the one that was given.
    """
    if spec.end_id is not None:
        if spec.end_id >= len(tokenizer):
            raise UsageError(
                f"--eos_id must be one of the {len(tokenizer)} ids of {tokenizer.source}, got "
                f"{spec.end_id}"
            )
        return spec.end_id
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


@lru_cache(maxsize=4)
def _line_end_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns the tokens of a line end; () where a tokenizer does not keep white space.

    Each split's objective asks; to start a tokenizer takes a second, its library does it at once.
    """
    if isinstance(tokenizer, JsonTokenizer) and tokenizer.kind != "wordpiece":
        started = library_lines(tokenizer.library(allow_special_tokens=False))
    else:
        started = tokenizer.start(lower_case=False)
    lines = started.tokenize(Lines.from_list([b"\n"]))
    ids = tuple(lines.ids.tolist())
    return () if tokenizer.special.unknown_id in ids else ids


def sentinel_ids(spec: LanguageSpec, tokenizer: Tokenizer) -> tuple[int, ...]:
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


def mode_ids(spec: CorruptionSpec, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns the id that begins the inputs of each denoiser, () for none.

    Raises:
      UsageError: the tokenizer lacks a token.
    """
    found = []
    for token in spec.mode_tokens:
        known = int(token) if token.isdecimal() else tokenizer.ids.get(token, -1)
        if not 0 <= known < 1 << 31:
            raise UsageError(
                f"--mode_tokens must be tokens of {tokenizer.source} or ids below 2**31, and it "
                f"has no {token}; add it to the tokenizer, or give the id of an unused token"
            )
        found.append(known)
    return tuple(found[mode] for mode in spec.modes) if found else ()


def bind_language(
    spec: LanguageSpec, name: str, tokenizer: Tokenizer, seed: int, copies: int, packing: str,
    row: RowSpec,
) -> Objective:  # fmt: skip
    """Returns an objective of language models with its tokenizer.

    Args:
      spec: its options.
      name: "gpt", "t5", "t5_tokens" or "ul2".
      tokenizer: that ids are of.
      seed: of every random choice.
      copies: how often a document is used.
      packing: one of PACKINGS.
      row: what is read of records beside their text.

    Raises:
      UsageError: the tokenizer lacks a special token that is needed.
    """
    end_id = end_of_text(spec, tokenizer)
    pad_id = spec.pad_id
    if pad_id is None:
        pad_id = tokenizer.special.pad_id
    if name == "gpt":
        return CausalObjective(
            tokenizer, seed, copies, packing, row, end_id if pad_id is None else pad_id, end_id,
            _line_end_ids(tokenizer), spec.causal,
            _fim_ids(tokenizer, end_id) if spec.causal.fim.rate else None,
        )  # fmt: skip
    pad_id = 0 if pad_id is None else pad_id
    # In rows of several documents each has its end.
    document_end = None if packing == "none" else end_id
    if name == "t5_tokens":
        return CorruptionTokensObjective(
            tokenizer, seed, copies, packing, row, pad_id, document_end, (), spec.corruption
        )
    start_id = spec.decoder_start_id
    if start_id is None:
        start_id = tokenizer.special.begin_of_text_id
    return CorruptionObjective(
        tokenizer, seed, copies, packing, row, pad_id, document_end, (), name, spec.corruption,
        spec.form, end_id, pad_id if start_id is None else start_id, sentinel_ids(spec, tokenizer),
        mode_ids(spec.corruption, tokenizer),
    )  # fmt: skip
