"""Objectives of language models as arguments: see `tasks.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from recordmill.records.errors import UsageError, one_of
from recordmill.records.text_formats import CORRUPTION_FORMATS
from recordmill.transforms.sources.document_spec import WHOLE_TEXT
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.text.causal import CausalSpec
from recordmill.transforms.text.corruption import CorruptionSpec, Denoiser
from recordmill.transforms.text.fill_in_middle import FimSpec
from recordmill.transforms.text.language_spec import LanguageSpec
from recordmill.transforms.text.objective_spec import ObjectiveSpec
from recordmill.transforms.text.task import TextTask, check_kept_fields

# R, S and X denoisers: short spans, the end of a row, long or many spans.
UL2_DENOISERS = "0.15:3:1,0.15:8:1,0.25:1000000:1,0.5:3:1,0.5:8:1,0.15:64:1,0.5:64:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Language(TextTask):
    """Options of language models.

    Attributes:
      packing: "none", "concat" (documents are joined and cut where rows end), or "best_fit" (rows
        are filled with whole documents).
      eos_id: behind documents; None is the tokenizer's end of text, or [SEP].
    """

    packing: str = "none"
    eos_id: int | None = None

    @property
    def splitter(self) -> str:
        """The text stays whole."""
        return WHOLE_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpt(_Language):
    """Rows of documents with the next token as label.

    Attributes:
      dupe_factor: copies of the text, each with its own draws of fim_rate.
      packing: see `T5`.
      format: "cerebras", "seqio" or "maxtext"; None is the first.
      pad_id: behind the tokens of a row; None is the tokenizer's.
      prompts: documents have a prompt before their text, which may be empty.
      loss_mask: nothing is to be predicted of prompts.
      fim_rate: the share of documents whose middle is moved to their end, in [0, 1].
      fim_spm_rate: of those the share in the order suffix, prefix, middle, in [0, 1].
      use_segment_ids, use_position_id: write these too; with segments no label is of another
        document.
    """

    name: ClassVar[str] = "gpt"
    dupe_factor: int = 1
    packing: str = "best_fit"
    format: str | None = None
    pad_id: int | None = None
    prompts: bool = False
    loss_mask: bool = False
    fim_rate: float = 0.0
    fim_spm_rate: float = 0.5
    use_segment_ids: bool = False
    use_position_id: bool = False

    @property
    def spec(self) -> ObjectiveSpec:
        """The options by what they are for."""
        causal = CausalSpec(
            self.max_seq_length, self.format or "cerebras",
            FimSpec(self.fim_rate, self.fim_spm_rate), self.loss_mask,
            self.use_segment_ids, self.use_position_id,
        )  # fmt: skip
        language = LanguageSpec(
            # Of gpt it has no effect, but is part of the fingerprint.
            causal, form=self.format or "seqio", pad_id=self.pad_id, end_id=self.eos_id
        )  # fmt: skip
        return ObjectiveSpec(
            self.name,
            self.dupe_factor,
            use_position_id=self.use_position_id,
            use_segment_ids=self.use_segment_ids,
            packing=self.packing,
            language=language,
        )

    def row(self, keep_fields: str) -> RowSpec:
        """Returns what documents have beside their text: perhaps a prompt."""
        kept = parse_fields(keep_fields)
        check_kept_fields(self.spec, kept)
        if self.loss_mask and not self.prompts:
            raise UsageError("loss_mask has no effect without prompts=True; leave it out")
        return RowSpec(keep_fields=kept, prompt_field="prompt" if self.prompts else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Corrupted(_Language):
    """Options of span corruption that is written.

    Attributes:
      dupe_factor: copies of the text, each corrupted in its own way.
      format: "seqio" or "cerebras".
      pad_id: behind the tokens of a row; None is the tokenizer's.
      first_sentinel_id: from which on sentinels descend; None are the tokenizer's.
      decoder_start_id: of "cerebras": that decoder inputs begin with; None is the tokenizer's.
    """

    dupe_factor: int = 10
    format: str = "seqio"
    pad_id: int | None = None
    first_sentinel_id: int | None = None
    decoder_start_id: int | None = None

    @property
    def corruption(self) -> CorruptionSpec:
        """How rows are corrupted."""
        raise NotImplementedError

    @property
    def spec(self) -> ObjectiveSpec:
        """The options by what they are for."""
        one_of("format", self.format, CORRUPTION_FORMATS)
        language = LanguageSpec(
            corruption=self.corruption,
            form=self.format,
            pad_id=self.pad_id,
            end_id=self.eos_id,
            first_sentinel_id=self.first_sentinel_id,
            decoder_start_id=self.decoder_start_id,
        )
        return ObjectiveSpec(self.name, self.dupe_factor, packing=self.packing, language=language)


@dataclass(frozen=True, slots=True, kw_only=True)
class T5(_Corrupted):
    """Spans to be filled in (Raffel et al. 2020).

    Attributes:
      noise_density: the share of tokens that spans cover.
      mean_noise_span_length: of a span, in tokens.
    """

    name: ClassVar[str] = "t5"
    noise_density: float = 0.15
    mean_noise_span_length: float = 3.0

    @property
    def corruption(self) -> CorruptionSpec:
        """How rows are corrupted."""
        denoiser = Denoiser(self.noise_density, self.mean_noise_span_length)
        return CorruptionSpec(self.max_seq_length, (denoiser,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ul2(_Corrupted):
    """A mixture of denoisers (Tay et al. 2023).

    Attributes:
      denoisers: DENSITY:SPAN:SHARE,… of which a row draws one.
      mode_tokens: R,S,X: the tokens, or their ids, that inputs begin with; "" for none.
    """

    name: ClassVar[str] = "ul2"
    denoisers: str = UL2_DENOISERS
    mode_tokens: str = ""

    @property
    def corruption(self) -> CorruptionSpec:
        """How rows are corrupted."""
        modes = tuple(token.strip() for token in self.mode_tokens.split(",") if token.strip())
        return CorruptionSpec(self.max_seq_length, tuple(_denoisers(self.denoisers)), modes)


@dataclass(frozen=True, slots=True, kw_only=True)
class T5Tokens(_Language):
    """Rows that the reader corrupts as `T5` does.

    Attributes:
      noise_density, mean_noise_span_length: see `T5`.
    """

    name: ClassVar[str] = "t5_tokens"
    noise_density: float = 0.15
    mean_noise_span_length: float = 3.0

    @property
    def spec(self) -> ObjectiveSpec:
        """The options by what they are for."""
        denoiser = Denoiser(self.noise_density, self.mean_noise_span_length)
        language = LanguageSpec(
            corruption=CorruptionSpec(self.max_seq_length, (denoiser,)), end_id=self.eos_id
        )
        return ObjectiveSpec(self.name, 1, packing=self.packing, language=language)


def _denoisers(text: str) -> Iterator[Denoiser]:
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
        yield Denoiser(density, span, share)
