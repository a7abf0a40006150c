"""The options of text jobs: objectives, each a struct of its own, cleaning, tokenizers, and a job.

`Bert(masked_lm_prob=0.2)` is what `WriteText` takes and what `recordmill text --task=bert
--masked_lm_prob=0.2` makes. Nothing heavy is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from recordmill.records.errors import UsageError
from recordmill.records.spec import Spec, option
from recordmill.transforms.dataset.output_spec import (
    KeptFields,
    MapOptions,
    OutputSpec,
    WarningsOption,
    WriteSpec,
)
from recordmill.transforms.sources.input_spec import (
    WHOLE_TEXT,
    Documents,
    InputSpec,
    LowerCase,
    MaxRejected,
    SentenceSplitting,
    SourceOptions,
)
from recordmill.transforms.text.presets import PRESETS

if TYPE_CHECKING:
    from recordmill.transforms.text.corruption import CorruptionSpec

RecordType = Literal["sequence_example", "example"]
CausalFormat = Literal["cerebras", "maxtext", "seqio"]
CorruptionFormat = Literal["seqio", "cerebras"]
Packing = Literal["none", "concat", "best_fit"]
Splitter = Literal["auto", "none", "punctuation"]
Normalization = Literal["none", "nfc", "nfkc", "ftfy"]
Deduplication = Literal["none", "exact", "near"]
MAX_NGRAM_SIZE = 16
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # of BERT
_MAX_SEQ_LENGTH = 1 << 20
USUAL_PREDICTIONS = 20  # of an example
# R, S and X denoisers: short spans, the end of a row, long or many spans.
UL2_DENOISERS = "0.15:3:1,0.15:8:1,0.25:1000000:1,0.5:3:1,0.5:8:1,0.15:64:1,0.5:64:1"

# Options that several objectives have.
_Copies = Annotated[int, option(
    "Copies of the text, each masked or corrupted in its own way; by default 10, for mlm_tokens, "
    "classify, gpt and t5_tokens 1.", ge=1, short="copies of the text, each masked in its own way",
    example="5"
)]  # fmt: skip
_ShortSeqProb = Annotated[float, option(
    "Of pretraining: the probability that an example is made shorter than --max_seq_length.", ge=0,
    le=1, example="0.05"
)]  # fmt: skip
_MinShortSeqLength = Annotated[int | None, option(
    "mlm: the least length of a shorter window; by default 2 + --overlap_size.", example="16"
)]  # fmt: skip
_OverlapSize = Annotated[int | None, option(
    "mlm: tokens that a window shares with the next; by default --max_seq_length / 4.", example="32"
)]  # fmt: skip
_CrossDocuments = Annotated[
    bool, option("mlm: a window may continue in the next document, with [SEP] between them.")
]
_V2Names = Annotated[
    bool, option("bert, mlm, classify: name the features as Model Garden's second version does.")
]
_PositionIds = Annotated[
    bool, option("bert, gpt, and mlm with --packing: write the feature position_ids too.")
]
_SegmentIds = Annotated[bool, option(
    "mlm: write segment_ids too, all 0, as Model Garden's loader needs them. With --packing, and "
    "for gpt: 1, 2, … by document, 0 on padding; then no label of gpt is of another document."
)]  # fmt: skip
_LANGUAGE = "language models"
_Packing = Annotated[Packing, option(
    "mlm, gpt, t5, t5_tokens, ul2: none: a document begins a row. concat: documents are joined "
    "and cut where rows end. best_fit: rows are filled with whole documents, and only documents "
    "longer than a row are cut. By default best_fit for gpt, and none for the others.",
    group=_LANGUAGE, example="best_fit"
)]  # fmt: skip
_FORMATS = (
    "gpt, t5, ul2: the features of records. cerebras: what Cerebras' Model Zoo reads; "
    "seqio: targets, or inputs and targets, not padded; maxtext, of gpt: inputs and targets "
    "with segments and positions. By default cerebras for gpt, and seqio for the others."
)
_PadId = Annotated[int | None, option(
    "gpt, t5, ul2: the id behind the tokens of a row, by default the tokenizer's; of one without, "
    "as GPT-2's, gpt takes the end of text, and others 0.", ge=0, le=(1 << 31) - 1, group=_LANGUAGE,
    value="ID", example="0"
)]  # fmt: skip
_NoiseDensity = Annotated[float, option(
    "t5, t5_tokens: the share of tokens that spans of noise cover.", gt=0, lt=1, group=_LANGUAGE
)]  # fmt: skip
_MeanSpanLength = Annotated[float, option(
    "t5, t5_tokens: the mean length of such a span, in tokens.", ge=1, le=1e9, group=_LANGUAGE
)]  # fmt: skip


class ObjectiveOptions(Spec, frozen=True, kw_only=True):
    """What examples are made of documents.

    Attributes:
      max_seq_length: the tokens of an example, special ones included.
    """

    group: ClassVar[str] = "task"
    one_copy: ClassVar[str] = ""  # why there can be no more
    is_language: ClassVar[bool] = False  # rows of documents for language models

    max_seq_length: Annotated[int, option(
        "Tokens of an example, special ones included.", short="tokens of an example", example="512"
    )] = 128  # fmt: skip
    dupe_factor: _Copies = 10

    @property
    def name(self) -> str:
        """What --task calls it."""
        return str(type(self).__struct_config__.tag)

    @property
    def strips(self) -> bool:
        """Whether white space at both ends of texts is left out."""
        return False

    @property
    def splitter(self) -> SentenceSplitting:
        """How text becomes sentences, see `DocumentSpec.sentence_splitter`."""
        return "none"

    @property
    def row_tokens(self) -> int:
        """The most tokens of a row of documents."""
        return self.max_seq_length

    @property
    def padded_length(self) -> int | None:
        """The tokens that every example is padded to; None where examples are not padded."""
        return self.max_seq_length

    @property
    def packed_tokens(self) -> int | None:
        """The tokens of a row into which documents are packed; None where they are not."""
        return self.row_tokens if self.packing != "none" else None

    @property
    def packing(self) -> Packing:
        """How documents share rows."""
        return "none"

    def check(self) -> None:
        """Checks the length of examples: each must hold text."""
        if not 8 <= self.max_seq_length <= _MAX_SEQ_LENGTH:
            raise UsageError(
                f"--max_seq_length must be in [8, {_MAX_SEQ_LENGTH}], got {self.max_seq_length}"
            )
        self.check_copies()

    def check_copies(self) -> None:
        """Refuses copies that would all be alike."""
        if self.dupe_factor != 1 and self.one_copy:
            raise UsageError(
                f"--dupe_factor must be 1 for --task={self.name}, which {self.one_copy}"
            )

    def check_kept_fields(self) -> None:
        """Refuses kept fields where a record holds several documents, or cannot hold fields.

        Raises:
          UsageError: says why.
        """
        if self.packing != "none":
            raise UsageError(
                f"--keep_fields has no meaning with --packing={self.packing}, where a record "
                "holds several documents; leave it out, or give --packing=none"
            )


class Masked(ObjectiveOptions, frozen=True, kw_only=True):
    """Options of masking (Devlin et al. 2019, arXiv:1810.04805)."""

    short_seq_prob: _ShortSeqProb = 0.1
    use_v2_feature_names: _V2Names = False
    use_position_id: _PositionIds = False
    max_predictions_per_seq: Annotated[int | None, option(
        "Masked tokens of an example, at most; they must be fewer than --max_seq_length.", ge=1,
        short="masked tokens of an example, at most", default="20, or fewer for short sequences",
        example="76"
    )] = None  # fmt: skip
    masked_lm_prob: Annotated[float, option(
        "The share of tokens that are masked.", gt=0, lt=1, short="of tokens that are masked"
    )] = 0.15  # fmt: skip
    do_whole_word_mask: Annotated[bool, option("Mask all tokens of a word or none.")] = False
    max_ngram_size: Annotated[
        int, option("Mask up to so many words in a row.", ge=1, le=MAX_NGRAM_SIZE, example="3")
    ] = 1
    replacement: Annotated[Literal["per_token", "per_word"], option(
        "Draw what masked tokens become for each token, as BERT does, or for each word, as Model "
        "Garden does."
    )] = "per_token"  # fmt: skip

    def check(self) -> None:
        """Checks that an example has room for its predictions, and that words are replaced."""
        super().check()
        if self.most_predictions >= self.max_seq_length:
            raise UsageError(
                f"--max_predictions_per_seq must be below --max_seq_length={self.max_seq_length}, "
                f"got {self.most_predictions}"
            )
        if self.replacement == "per_word" and not self.masks_words:
            raise UsageError(
                "--replacement has no effect without --do_whole_word_mask or --max_ngram_size; "
                "leave it out"
            )

    @property
    def most_predictions(self) -> int:
        """The most masked tokens of an example."""
        if self.max_predictions_per_seq is None:
            return min(USUAL_PREDICTIONS, self.max_seq_length - 1)
        return self.max_predictions_per_seq

    @property
    def masks_words(self) -> bool:
        """Whether words are masked as a whole."""
        return self.do_whole_word_mask or self.max_ngram_size > 1


class Bert(Masked, frozen=True, kw_only=True, tag="bert", tag_field="name"):
    """Masked pairs of segments (Devlin et al. 2019).

    Attributes:
      sentence_order: the label says whether segments are swapped, as in ALBERT.
      no_nsp: segments follow each other, and there is no next_sentence_labels.
      sentence_splitter: "none": a line is a sentence; "punctuation": a rule splits lines.
    """

    sentence_splitter: Annotated[Splitter, option(
        "bert: a line is a sentence (none), or a rule splits lines (punctuation); auto goes by "
        "the input.", example="punctuation"
    )] = "auto"  # fmt: skip
    sentence_order: Annotated[bool, option(
        "bert: the label says whether segments are swapped, as in ALBERT; no segment is random.",
        group=_LANGUAGE
    )] = False  # fmt: skip
    no_nsp: Annotated[bool, option(
        "bert: segments follow each other, and there is no next_sentence_labels.", group=_LANGUAGE
    )] = False  # fmt: skip

    def check(self) -> None:
        """Checks that one option alone decides the label."""
        super().check()
        if self.sentence_order and self.no_nsp:
            raise UsageError(
                "--no_nsp has no effect with --sentence_order, whose label is another; leave it out"
            )

    @property
    def second_segment(self) -> str:
        """What the second segment of a pair is.

        "next": half of them are random, as BERT has them; "order": half of the pairs are swapped
        (Lan et al. 2020, arXiv:1909.11942); "none": it is always the one that follows.
        """
        return "order" if self.sentence_order else "none" if self.no_nsp else "next"

    @property
    def splitter(self) -> SentenceSplitting:
        """See `sentence_splitter`."""
        return self.sentence_splitter

    def check_kept_fields(self) -> None:
        """Refuses kept fields."""
        raise UsageError(
            "--keep_fields has no meaning for --task=bert, whose records hold segments of two "
            "documents; leave it out, or give --task=mlm"
        )


class Mlm(Masked, frozen=True, kw_only=True, tag="mlm", tag_field="name"):
    """Masked windows that slide over documents, or packed rows of documents.

    Attributes:
      overlap_size: tokens that a window shares with the next; None is a quarter of a window.
      min_short_seq_length: the least length of a shorter window; None is 2 + overlap_size.
      allow_cross_document_examples: a window may continue in the next document.
      use_segment_ids: write segment_ids too.
      packing: "none", or documents share rows instead: "concat" or "best_fit".
    """

    overlap_size: _OverlapSize = None
    min_short_seq_length: _MinShortSeqLength = None
    allow_cross_document_examples: _CrossDocuments = False
    use_segment_ids: _SegmentIds = False
    packing: _Packing = "none"

    def check(self) -> None:
        """Checks the sizes of windows, or that rows have none."""
        super().check()
        given = self.given()
        if self.packing == "none":
            _check_windows(self)
            if self.use_position_id:
                raise UsageError("--use_position_id has no effect without --packing; leave it out")
            return
        for name in (*_WINDOW_FLAGS, "short_seq_prob"):
            if name in given:
                raise UsageError(
                    f"--{name} has no effect with --packing={self.packing}; leave it out"
                )

    @property
    def overlap(self: Windowed) -> int:
        """Tokens that a window shares with the next."""
        return self.max_seq_length // 4 if self.overlap_size is None else self.overlap_size

    @property
    def least_tokens(self: Windowed) -> int:
        """The least tokens of a shorter window, without [CLS] and [SEP]."""
        least = self.min_short_seq_length
        return 2 + self.overlap if least is None else least

    def check_kept_fields(self) -> None:
        """Refuses kept fields where a record holds several documents."""
        _check_one_document(self)
        super().check_kept_fields()


_WINDOW_FLAGS = ("overlap_size", "min_short_seq_length", "allow_cross_document_examples")


class MlmTokens(ObjectiveOptions, frozen=True, kw_only=True, tag="mlm_tokens", tag_field="name"):
    """Windows that the reader masks.

    Attributes:
      overlap_size, min_short_seq_length, allow_cross_document_examples: see `Mlm`.
      short_seq_prob: the probability that a window is shorter, in [0, 1].
      record_type: "sequence_example", or "example", which TFDS reads.
    """

    one_copy: ClassVar[str] = "is masked on reading"

    dupe_factor: _Copies = 1
    short_seq_prob: _ShortSeqProb = 0.1
    overlap_size: _OverlapSize = None
    min_short_seq_length: _MinShortSeqLength = None
    allow_cross_document_examples: _CrossDocuments = False
    record_type: Annotated[RecordType, option(
        "mlm_tokens: sequence_example is what Cerebras reads; TFDS reads example.",
        example="example"
    )] = "sequence_example"  # fmt: skip

    def check(self) -> None:
        """Checks the sizes of windows."""
        super().check()
        _check_windows(self)

    overlap = Mlm.overlap
    least_tokens = Mlm.least_tokens

    @property
    def padded_length(self) -> int | None:
        """Windows are not padded."""
        return None

    def check_kept_fields(self) -> None:
        """Refuses kept fields where a record cannot hold them."""
        _check_one_document(self)
        if self.record_type != "example":
            raise UsageError(
                "--keep_fields needs --record_type=example for --task=mlm_tokens, because a "
                "SequenceExample has lists of tokens alone"
            )


Windowed = Mlm | MlmTokens


def _check_windows(spec: Windowed) -> None:
    """Checks the sizes of windows against each other.

    Raises:
      UsageError: one does not fit, or has no effect.
    """
    tokens, overlap = spec.max_seq_length - 2, spec.overlap
    if not 0 <= overlap <= tokens // 2:
        raise UsageError(
            f"--overlap_size must be in [0, {tokens // 2}] for --max_seq_length="
            f"{spec.max_seq_length}, got {overlap}"
        )
    if not overlap + 1 <= spec.least_tokens <= tokens:
        raise UsageError(
            f"--min_short_seq_length must be in [{overlap + 1}, {tokens}], got {spec.least_tokens}"
        )
    if spec.min_short_seq_length is not None and spec.short_seq_prob == 0:
        raise UsageError(
            "--min_short_seq_length has no effect with --short_seq_prob=0; leave it out"
        )


def _check_one_document(spec: Windowed) -> None:
    if spec.allow_cross_document_examples:
        raise UsageError(
            "--keep_fields has no meaning with --allow_cross_document_examples, where a record "
            "holds several documents; leave one of them out"
        )


class Classify(ObjectiveOptions, frozen=True, kw_only=True, tag="classify", tag_field="name"):
    """Labelled texts, or pairs of texts, as BERT's run_classifier has them.

    Attributes:
      labels: "auto" numbers the labels that occur, sorted; whole numbers from 0 on stay as they
        are; "number": they are numbers to be predicted; or a file of all labels, one a line.
      pairs: documents have a second text.
      use_v2_feature_names: name the features as Model Garden's second version does.
    """

    one_copy: ClassVar[str] = "writes each row once"

    dupe_factor: _Copies = 1
    labels: Annotated[str, option(
        "classify: auto numbers the labels that occur, sorted; whole numbers from 0 on stay as "
        "they are. number: the label is a number to be predicted, a float, and no class. A file "
        "has all labels, one a line in order of their ids: rows with others are rejected.",
        group="input", value="auto | number | FILE", path="file",
        python_values=(("FILE", "labels"),), example="number"
    )] = "auto"  # fmt: skip
    use_v2_feature_names: _V2Names = False
    pairs: bool = False
    label_field: Annotated[str, option(
        "classify: the field of the label.", group="input", value="FIELD", python="Document.label",
        example="sentiment"
    )] = "label"  # fmt: skip
    text_pair_field: Annotated[str, option(
        "classify: the field of the second text of a pair, by default none.", group="input",
        value="FIELD", python="Document.pair", example="hypothesis"
    )] = ""  # fmt: skip

    def check_kept_fields(self) -> None:
        """A record holds one document."""


class Language(ObjectiveOptions, frozen=True, kw_only=True):
    """Options of language models.

    Attributes:
      eos_id: behind documents; None is the tokenizer's end of text, or [SEP].
      strip: leave out white space at both ends of texts.
    """

    is_language: ClassVar[bool] = True

    eos_id: Annotated[int | None, option(
        "gpt, t5, t5_tokens, ul2: the id behind documents, by default the tokenizer's end of "
        "text, or [SEP].", ge=0, le=(1 << 31) - 1, group=_LANGUAGE, value="ID", example="50256"
    )] = None  # fmt: skip
    strip: Annotated[bool, option(
        "gpt, t5, t5_tokens, ul2: leave out white space at the beginning and the end of each "
        "document; else its text is what the input has.", group=_LANGUAGE
    )] = False  # fmt: skip

    @property
    def strips(self) -> bool:
        """See `strip`."""
        return self.strip

    @property
    def splitter(self) -> SentenceSplitting:
        """The text stays whole."""
        return WHOLE_TEXT


class Gpt(Language, frozen=True, kw_only=True, tag="gpt", tag_field="name"):
    """Rows of documents with the next token as label.

    Attributes:
      dupe_factor: copies of the text, each with its own draws of fim_rate.
      packing: see `T5`.
      format: "cerebras", "seqio" or "maxtext".
      pad_id: behind the tokens of a row; None is the tokenizer's.
      prompts: documents have a prompt before their text, which may be empty.
      loss_mask: nothing is to be predicted of prompts.
      fim_rate: the share of documents whose middle is moved to their end, in [0, 1].
      fim_spm_rate: of those the share in the order suffix, prefix, middle, in [0, 1].
      use_segment_ids, use_position_id: write these too; with segments no label is of another
        document.
    """

    dupe_factor: _Copies = 1
    use_position_id: _PositionIds = False
    use_segment_ids: _SegmentIds = False
    format: Annotated[CausalFormat, option(_FORMATS, group=_LANGUAGE, example="maxtext")] = (
        "cerebras"
    )
    packing: _Packing = "best_fit"
    pad_id: _PadId = None
    prompt_field: Annotated[str, option(
        "gpt: the field of the prompt that stands before the text; by default none.", group="input",
        value="FIELD", python="prompts=True", example="question"
    )] = ""  # fmt: skip
    prompts: bool = False
    loss_mask: Annotated[bool, option(
        "gpt: nothing is to be predicted of prompts (--prompt_field): input_mask, or "
        "targets_segmentation, is 1 on answers alone.", group=_LANGUAGE
    )] = False  # fmt: skip
    fim_rate: Annotated[float, option(
        "gpt: the share of documents whose middle is moved to their end, for models that fill in "
        "the middle.", ge=0, le=1, group=_LANGUAGE, example="0.5"
    )] = 0.0  # fmt: skip
    fim_spm_rate: Annotated[float, option(
        "gpt: of those the share in the order suffix, prefix, middle (SPM); the others are in the "
        "order prefix, suffix, middle (PSM).", ge=0, le=1, group=_LANGUAGE, needs="fim_rate"
    )] = 0.5  # fmt: skip

    def check(self) -> None:
        """Checks which options the format has."""
        super().check()
        given = self.given()
        if self.format != "cerebras":
            for name in ("use_segment_ids", "use_position_id"):
                if name in given:
                    raise UsageError(
                        f"--{name} has no effect with --format={self.format}; leave it out"
                    )
        if self.format == "seqio":
            if self.pad_id is not None:
                raise UsageError(_UNPADDED)
            if self.loss_mask:
                raise UsageError(
                    "--loss_mask needs --format=cerebras or maxtext, because records of seqio have "
                    "targets alone"
                )
        if self.loss_mask and not (self.prompts or self.prompt_field):
            raise UsageError("--loss_mask has no effect without --prompt_field; leave it out")
        if self.fim_rate and self.loss_mask:
            raise UsageError(
                "--fim_rate moves parts of documents, and --loss_mask needs them in their order; "
                "give one of them"
            )
        if self.dupe_factor != 1 and not self.fim_rate:
            raise UsageError(
                "--dupe_factor must be 1 for --task=gpt, which has no draws without --fim_rate"
            )

    @property
    def row_tokens(self) -> int:
        """The tokens of a row: those of an example, and the label of the last where it has one.

        Where labels do not cross documents it may have none, and the next token would be lost.
        """
        return self.max_seq_length + self.labels_cross

    @property
    def padded_length(self) -> int | None:
        """Of seqio's records none."""
        return None if self.format == "seqio" else self.row_tokens

    @property
    def with_spans(self) -> bool:
        """Whether segments, positions or answers of rows are used."""
        if self.format == "seqio":
            return False
        return not self.labels_cross or self.use_position_id or self.loss_mask

    @property
    def labels_cross(self) -> bool:
        """Whether the last token of a document has the first of the next as its label."""
        return self.format == "cerebras" and not self.use_segment_ids


_UNPADDED = "--pad_id has no effect with --format=seqio, whose records are not padded; leave it out"


class Corrupted(Language, frozen=True, kw_only=True):
    """Options of span corruption (Raffel et al. 2020, arXiv:1910.10683)."""

    packing: _Packing = "none"

    @property
    def corruption(self) -> CorruptionSpec:
        """How rows are corrupted."""
        raise NotImplementedError

    def check(self) -> None:
        """Checks how much of a row is noise."""
        self.check_copies()
        _ = self.corruption

    @property
    def row_tokens(self) -> int:
        """The most tokens of a row before corruption."""
        return self.corruption.raw_length


class WrittenCorruption(Corrupted, frozen=True, kw_only=True):
    """Options of span corruption that is written.

    Attributes:
      dupe_factor: copies of the text, each corrupted in its own way.
      format: "seqio" or "cerebras".
      pad_id: behind the tokens of a row; None is the tokenizer's.
      first_sentinel_id: from which on sentinels descend; None are the tokenizer's.
      decoder_start_id: of "cerebras": that decoder inputs begin with; None is the tokenizer's.
    """

    format: Annotated[CorruptionFormat, option(_FORMATS, group=_LANGUAGE, example="seqio")] = (
        "seqio"
    )
    pad_id: _PadId = None
    first_sentinel_id: Annotated[int | None, option(
        "t5, ul2: the id from which on sentinels descend, by default the tokenizer's "
        "<extra_id_0>, …, or the last of 100 ids behind the vocabulary.", ge=0, le=(1 << 31) - 1,
        group=_LANGUAGE, value="ID", example="32099"
    )] = None  # fmt: skip
    decoder_start_id: Annotated[int | None, option(
        "t5, ul2, with --format=cerebras: the id that decoder inputs begin with, by default that "
        "of <s>, or of padding.", ge=0, le=(1 << 31) - 1, group=_LANGUAGE, value="ID", example="0"
    )] = None  # fmt: skip

    def check(self) -> None:
        """Checks which options the format has."""
        super().check()
        if self.format != "cerebras" and self.decoder_start_id is not None:
            raise UsageError(
                "--decoder_start_id has no effect without --format=cerebras; leave it out"
            )
        if self.format == "seqio" and self.pad_id is not None:
            raise UsageError(_UNPADDED)

    @property
    def padded_length(self) -> int | None:
        """Of seqio's records none."""
        return None if self.format == "seqio" else self.row_tokens


class T5(WrittenCorruption, frozen=True, kw_only=True, tag="t5", tag_field="name"):
    """Spans to be filled in (Raffel et al. 2020).

    Attributes:
      noise_density: the share of tokens that spans cover.
      mean_noise_span_length: of a span, in tokens.
    """

    noise_density: _NoiseDensity = 0.15
    mean_noise_span_length: _MeanSpanLength = 3.0

    @property
    def corruption(self: T5 | T5Tokens) -> CorruptionSpec:
        """How rows are corrupted."""
        denoiser = (self.noise_density, self.mean_noise_span_length, 1.0)
        return _corruption(self.max_seq_length, (denoiser,))


class T5Tokens(Corrupted, frozen=True, kw_only=True, tag="t5_tokens", tag_field="name"):
    """Rows that the reader corrupts as `T5` does.

    Attributes:
      noise_density, mean_noise_span_length: see `T5`.
    """

    one_copy: ClassVar[str] = "is corrupted on reading"

    dupe_factor: _Copies = 1
    noise_density: _NoiseDensity = 0.15
    mean_noise_span_length: _MeanSpanLength = 3.0

    corruption = T5.corruption

    @property
    def padded_length(self) -> int | None:
        """Rows are not padded."""
        return None


class Ul2(WrittenCorruption, frozen=True, kw_only=True, tag="ul2", tag_field="name"):
    """A mixture of denoisers (Tay et al. 2023, arXiv:2205.05131).

    Attributes:
      denoisers: DENSITY:SPAN:SHARE,… of which a row draws one.
      mode_tokens: R,S,X: the tokens, or their ids, that inputs begin with; "" for none.
    """

    denoisers: Annotated[str, option(
        "ul2: noise density, mean span length and share of each denoiser, of which a row draws "
        "one. A span longer than any row makes the end of the row the only span, as a prefix "
        "language model has it.", group=_LANGUAGE, value="DENSITY:SPAN:SHARE,…",
        example="0.15:3:0.5,0.5:32:0.5"
    )] = UL2_DENOISERS  # fmt: skip
    mode_tokens: Annotated[str, option(
        "ul2: tokens, or their ids, of which one begins each input: the first where the row's "
        "denoiser is regular, the second where it is a prefix language model, the third where it "
        "is extreme, with spans of 12 tokens or more or a density of 0.3 or more. By default none.",
        group=_LANGUAGE, value="R,S,X", example="'[R],[S],[X]'"
    )] = ""  # fmt: skip

    @property
    def corruption(self) -> CorruptionSpec:
        """How rows are corrupted."""
        modes = tuple(token.strip() for token in self.mode_tokens.split(",") if token.strip())
        return _corruption(self.max_seq_length, tuple(_denoisers(self.denoisers)), modes)


@cache
def _corruption(
    length: int, denoisers: tuple[tuple[float, float, float], ...], modes: tuple[str, ...] = ()
) -> CorruptionSpec:
    """Returns how rows are corrupted, once: to find their lengths takes many steps."""
    from recordmill.transforms.text.corruption import CorruptionSpec, Denoiser

    return CorruptionSpec(length, tuple(Denoiser(*numbers) for numbers in denoisers), modes)


def _denoisers(text: str) -> Iterator[tuple[float, float, float]]:
    """Reads `0.15:3:0.5,0.5:32:0.5`.

    Raises:
      UsageError: a part is no density, span and share.
    """
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            density, span, share = (float(number) for number in part.split(":"))
        except ValueError as error:
            raise UsageError(
                "--denoisers must be DENSITY:SPAN:SHARE,…, such as 0.15:3:0.5,0.5:32:0.5, got "
                f"{part}"
            ) from error
        yield density, span, share


Packable = Mlm | Gpt | T5 | T5Tokens | Ul2  # several documents may share a row of these
AnyObjective = Bert | Mlm | MlmTokens | Classify | Gpt | T5 | T5Tokens | Ul2


_Objective = Annotated[AnyObjective, option(
    "bert: masked pairs of segments; mlm: masked windows; mlm_tokens: windows that the reader "
    "masks; classify: labelled texts or pairs of texts, as BERT's run_classifier; gpt: rows "
    "of documents with the next token as label; t5: spans to be filled in; t5_tokens: rows "
    "that the reader corrupts so; ul2: a mixture of such denoisers.", flag="task", group="task",
    short="", python="objective", example="mlm"
)]  # fmt: skip

# Options of texts and tokenizers, which `WriteText` has too.
_VOCAB_FILE = option(
    "BERT's vocab.txt, a Hugging Face tokenizer.json, GPT-2's encoder.json beside its "
    "vocab.bpe, a SentencePiece .model, or a .tiktoken file.",
    aliases=("tokenizer",), shown="tokenizer",
    short="or --vocab_file: vocab.txt, tokenizer.json, .model", value="FILE", path="file",
    python="tokenizer", picker="GCS_READ_FILE", example="tokenizer.json"
)  # fmt: skip
_AllowSpecialTokens = Annotated[bool, option(
    "Where the text spells a special token, such as <|endoftext|>, its id is written; "
    "otherwise that is text like any other. Not of vocab.txt."
)]  # fmt: skip
_CheckCase = Annotated[bool, option(
    "Refuse a vocabulary whose capital letters do not fit --do_lower_case.", group="input",
    fingerprint=False
)]  # fmt: skip
_KEEP_FIELDS = option(
    "mlm, mlm_tokens, classify; with --packing=none gpt, t5, t5_tokens, ul2: fields of all "
    "but plain text that are carried into the records, as features of their names: text as "
    "bytes, or numbers, as id,url,year:int. By default none.", group="input",
    value="FIELD[:int|:float],…", example="id,url,year:int"
)  # fmt: skip
_DUPE_SPLITS = option(
    "The splits that get all copies of the text, others get one; by default train, or the "
    "first split where none is called train.", group="task", value="NAME,… | all", example="all"
)  # fmt: skip


class CleanSpec(Spec, frozen=True, kw_only=True):
    """How a corpus is cleaned.

    Attributes:
      normalize: the form that text is brought to before anything else looks at it.
      min_tokens, max_tokens: documents with fewer or more are dropped; those without any are
        counted apart.
      deduplicate: "exact" keeps the first of documents of equal text, "near" of similar ones.
      near_threshold: the Jaccard similarity of word 5-grams from which documents are similar.
      list_dropped: whether the dropped documents are listed.
    """

    group: ClassVar[str] = "cleaning"

    normalize: Annotated[Normalization, option(
        "Bring text to a Unicode form before all but --map: nfc, nfkc, or what ftfy makes of it, "
        "which repairs wrongly decoded characters and HTML entities.", example="nfkc"
    )] = "none"  # fmt: skip
    min_tokens: Annotated[int, option(
        "Drop documents with fewer tokens; 0 drops none.", ge=0, value="N", example="50"
    )] = 0  # fmt: skip
    max_tokens: Annotated[int | None, option(
        "Drop documents with more tokens; by default none.", value="N", example="100000"
    )] = None  # fmt: skip
    deduplicate: Annotated[Deduplication, option(
        "exact: of documents with the same text, the first of the input is kept; near: of similar "
        "ones too, found by MinHash of word 5-grams.", example="exact"
    )] = "none"  # fmt: skip
    near_threshold: Annotated[float, option(
        "--deduplicate=near: the Jaccard similarity from which documents are similar.", ge=0.1,
        le=1, example="0.9"
    )] = 0.8  # fmt: skip
    list_dropped: Annotated[bool, option(
        "List the dropped documents in _meta/dropped, with the reason and what each repeats."
    )] = False  # fmt: skip

    def check(self) -> None:
        """Checks limits against each other, and what has no effect."""
        if self.max_tokens is not None and self.max_tokens < max(1, self.min_tokens):
            raise UsageError(
                f"--max_tokens must be at least 1 and not below --min_tokens, got "
                f"{self.max_tokens} with --min_tokens={self.min_tokens}"
            )
        if "near_threshold" in self.given() and self.deduplicate != "near":
            raise UsageError(
                "--near_threshold has no effect without --deduplicate=near; add it, or leave this "
                "out"
            )

    @property
    def limits_length(self) -> bool:
        """Whether the number of tokens decides on a document."""
        return self.min_tokens > 0 or self.max_tokens is not None

    @property
    def deduplicates(self) -> bool:
        """Whether documents are compared with each other."""
        return self.deduplicate != "none"

    @property
    def drops(self) -> bool:
        """Whether documents may be dropped at all."""
        return self.limits_length or self.deduplicates

    def check_lists(self, *, maps: bool) -> None:
        """Refuses a list of dropped documents where none is dropped.

        Args:
          maps: whether functions of the user's own may drop documents.
        """
        if self.list_dropped and not (self.drops or maps):
            raise UsageError(
                "--list_dropped has no effect where no document is dropped; add --min_tokens, "
                "--max_tokens, --deduplicate or --map, or leave it out"
            )


class TokenizerSpec(Spec, frozen=True, kw_only=True):
    """The tokenizer of a text job."""

    group: ClassVar[str] = "task"

    vocab_file: Annotated[str, _VOCAB_FILE] = ""
    allow_special_tokens: _AllowSpecialTokens = False
    do_lower_case: LowerCase = None
    check_case: _CheckCase = True


class TextSpec(Spec, frozen=True, kw_only=True):
    """`recordmill text`: all of its options.

    Attributes:
      input: where text is; `source`: how it lies in files.
      documents: what a document of plain text is, one of DOCUMENTS.
      split_by, split_from, keep_fields: fields of records, see `DocumentSpec`.
      output, map, clean, tokenizer, objective: see there.
      dupe_splits: the splits that get all copies of the text.
      preset: a name of `pipelines/presets.py`, whose flags are among the others already.
      output_file: BERT's name of --output.
    """

    input: InputSpec = InputSpec()
    source: SourceOptions = SourceOptions()
    documents: Annotated[Documents, option(
        "What a document is in plain text: a block between blank lines, a line, or a file.",
        group="input", short="", python="the documents",
        python_values=(("file", "a Document for each whole text"),), example="file"
    )] = "blank_line"  # fmt: skip
    split_by: Annotated[str, option(
        "A field of any format but plain text; documents with the same value share a split.",
        group="input", python="Document.group", example="author"
    )] = ""  # fmt: skip
    split_from: Annotated[str, option(
        "A field whose value is the name of the split, one of --splits=train,validation.",
        group="input", value="FIELD", python="Document.group", example="set"
    )] = ""  # fmt: skip
    keep_fields: Annotated[str, _KEEP_FIELDS] = ""
    map: MapOptions = MapOptions()
    clean: CleanSpec = CleanSpec()
    output: OutputSpec = OutputSpec()
    output_file: Annotated[str | None, option(
        "BERT's name of --output, with one shard unless another number is asked for.",
        group="output", path="folder", of_run=True, fingerprint=False, example="pretraining"
    )] = None  # fmt: skip
    preset: Annotated[str | None, option(
        "Set the flags that a reader wants, such as cerebras-gpt or seqio-t5; flags that are "
        "given win. --help-presets shows them.", group="task",
        short="flags for a reader; --help-presets shows them", value="NAME", choices=tuple(PRESETS),
        fingerprint=False, example="cerebras-gpt"
    )] = None  # fmt: skip
    objective: _Objective = Bert()
    tokenizer: TokenizerSpec = TokenizerSpec()
    dupe_splits: Annotated[str | None, _DUPE_SPLITS] = None


class WriteTextSpec(Spec, frozen=True, kw_only=True):
    """The arguments of `WriteText`."""

    objective: _Objective
    tokenizer: Annotated[str | os.PathLike[str], _VOCAB_FILE]
    do_lower_case: LowerCase = None
    check_case: _CheckCase = True
    allow_special_tokens: _AllowSpecialTokens = False
    dataset: WriteSpec = WriteSpec()
    clean: CleanSpec = CleanSpec()
    dupe_splits: Annotated[Sequence[str] | None, _DUPE_SPLITS] = None
    keep_fields: Annotated[KeptFields, _KEEP_FIELDS] = ""
    max_rejected: MaxRejected = 0.0
    warnings: WarningsOption = "print"
    run_tokens: Annotated[int, option("A worker holds so many tokens, twice.", ge=1)] = 1 << 24
