"""Objectives of BERT's family as arguments: see `tasks.py`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from recordmill.records.errors import one_of
from recordmill.transforms.sources.document_spec import SPLITTERS
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.text.classification import ClassifySpec
from recordmill.transforms.text.masking import MaskSpec
from recordmill.transforms.text.objective_spec import ObjectiveSpec
from recordmill.transforms.text.pairing import PairSpec
from recordmill.transforms.text.task import TextTask, label_spec
from recordmill.transforms.text.windows import WindowSpec

REPLACEMENTS = ("per_token", "per_word")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Masked(TextTask):
    """Options of masking.

    Attributes:
      dupe_factor: copies of the text, each masked in its own way.
      max_predictions_per_seq: masked tokens of an example, at most.
      masked_lm_prob: the share of tokens that are masked, in (0, 1).
      do_whole_word_mask: mask all tokens of a word, or none.
      max_ngram_size: mask up to so many words in a row.
      replacement: draw what masked tokens become "per_token" or "per_word".
      short_seq_prob: the probability that an example is made shorter, in [0, 1].
      use_v2_feature_names: name the features as Model Garden's second version does.
      use_position_id: write the feature position_ids too.
    """

    dupe_factor: int = 10
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    do_whole_word_mask: bool = False
    max_ngram_size: int = 1
    replacement: str = "per_token"
    short_seq_prob: float = 0.1
    use_v2_feature_names: bool = False
    use_position_id: bool = False

    @property
    def mask(self) -> MaskSpec:
        """How tokens are masked."""
        one_of("replacement", self.replacement, REPLACEMENTS)
        return MaskSpec(
            self.masked_lm_prob, self.max_predictions_per_seq, self.do_whole_word_mask,
            self.max_ngram_size, self.replacement == "per_word",
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bert(_Masked):
    """Masked pairs of segments (Devlin et al. 2019).

    Attributes:
      sentence_order: the label says whether segments are swapped, as in ALBERT.
      no_nsp: segments follow each other, and there is no next_sentence_labels.
      sentence_splitter: "none": a line is a sentence; "punctuation": a rule splits lines.
    """

    name: ClassVar[str] = "bert"
    sentence_order: bool = False
    no_nsp: bool = False
    sentence_splitter: str = "auto"

    @property
    def spec(self) -> ObjectiveSpec:
        """The options by what they are for."""
        one_of("sentence_splitter", self.sentence_splitter, SPLITTERS)
        second = "order" if self.sentence_order else "none" if self.no_nsp else "next"
        return ObjectiveSpec(
            self.name,
            self.dupe_factor,
            pair=PairSpec(self.max_seq_length, self.short_seq_prob, second),
            mask=self.mask,
            use_v2_feature_names=self.use_v2_feature_names,
            use_position_id=self.use_position_id,
        )

    @property
    def splitter(self) -> str:
        """See `sentence_splitter`."""
        return self.sentence_splitter


def _windows(
    length: int, overlap: int | None, short: float, least: int | None, *, cross: bool
) -> WindowSpec:
    overlap = length // 4 if overlap is None else overlap
    return WindowSpec(length, overlap, short, 2 + overlap if least is None else least, cross)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlm(_Masked):
    """Masked windows that slide over documents.

    Attributes:
      overlap_size: tokens that a window shares with the next; None is a quarter of a window.
      min_short_seq_length: the least length of a shorter window; None is 2 + overlap_size.
      allow_cross_document_examples: a window may continue in the next document.
      use_segment_ids: write segment_ids too.
      packing: "none", or documents share rows instead: "concat" or "best_fit".
    """

    name: ClassVar[str] = "mlm"
    overlap_size: int | None = None
    min_short_seq_length: int | None = None
    allow_cross_document_examples: bool = False
    use_segment_ids: bool = False
    packing: str = "none"

    @property
    def spec(self) -> ObjectiveSpec:
        """The options by what they are for."""
        window = WindowSpec(self.max_seq_length, short_seq_prob=0.0)
        if self.packing == "none":
            window = _windows(
                self.max_seq_length, self.overlap_size, self.short_seq_prob,
                self.min_short_seq_length, cross=self.allow_cross_document_examples,
            )  # fmt: skip
        return ObjectiveSpec(
            self.name,
            self.dupe_factor,
            mask=self.mask,
            window=window,
            use_v2_feature_names=self.use_v2_feature_names,
            use_position_id=self.use_position_id,
            use_segment_ids=self.use_segment_ids,
            packing=self.packing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MlmTokens(TextTask):
    """Windows that the reader masks.

    Attributes:
      overlap_size, min_short_seq_length, allow_cross_document_examples: see `Mlm`.
      short_seq_prob: the probability that a window is shorter, in [0, 1].
      record_type: "sequence_example", or "example", which TFDS reads.
    """

    name: ClassVar[str] = "mlm_tokens"
    overlap_size: int | None = None
    short_seq_prob: float = 0.1
    min_short_seq_length: int | None = None
    allow_cross_document_examples: bool = False
    record_type: str = "sequence_example"

    @property
    def spec(self) -> ObjectiveSpec:
        """The options by what they are for."""
        window = _windows(
            self.max_seq_length, self.overlap_size, self.short_seq_prob,
            self.min_short_seq_length, cross=self.allow_cross_document_examples,
        )  # fmt: skip
        return ObjectiveSpec(self.name, 1, window=window, record_type=self.record_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classify(TextTask):
    """Labelled texts, or pairs of texts, as BERT's run_classifier has them.

    Attributes:
      labels: "auto" numbers the labels that occur, sorted; whole numbers from 0 on stay as they
        are; "number": they are numbers to be predicted; or a file of all labels, one a line.
      pairs: documents have a second text.
      use_v2_feature_names: name the features as Model Garden's second version does.
    """

    name: ClassVar[str] = "classify"
    labels: str | os.PathLike[str] = "auto"
    pairs: bool = False
    use_v2_feature_names: bool = False

    @property
    def spec(self) -> ObjectiveSpec:
        """The options by what they are for."""
        return ObjectiveSpec(
            self.name,
            1,
            classify=ClassifySpec(self.max_seq_length),
            use_v2_feature_names=self.use_v2_feature_names,
        )

    def row(self, keep_fields: str) -> RowSpec:
        """Returns what documents have beside their text: a label, and perhaps a second text."""
        pair = "pair" if self.pairs else ""
        return RowSpec(label_spec("label", os.fspath(self.labels)), pair, parse_fields(keep_fields))
