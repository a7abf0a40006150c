"""Objectives by name, with their options."""

from __future__ import annotations

from dataclasses import dataclass, field

from recordmill.records.errors import at_least, one_of
from recordmill.records.text_formats import RECORD_TYPES
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.subwords.tokenizer import Tokenizer
from recordmill.transforms.text.classification import ClassifyObjective, ClassifySpec
from recordmill.transforms.text.language_spec import LanguageSpec, bind_language
from recordmill.transforms.text.masking import MaskSpec
from recordmill.transforms.text.objective import Objective, check_special_tokens
from recordmill.transforms.text.objectives import BertObjective, MlmObjective, MlmTokensObjective
from recordmill.transforms.text.packed_mlm import PackedMlmObjective
from recordmill.transforms.text.packing import PACKINGS
from recordmill.transforms.text.pairing import PairSpec
from recordmill.transforms.text.windows import WindowSpec

LANGUAGE_OBJECTIVES = ("gpt", "t5", "t5_tokens", "ul2")
OBJECTIVES = ("bert", "mlm", "mlm_tokens", "classify", *LANGUAGE_OBJECTIVES)


@dataclass(frozen=True, slots=True)
class ObjectiveSpec:
    """An objective by name, with its options; `bind` gives it a vocabulary.

    Attributes:
      name: one of OBJECTIVES.
      copies: how often a document is used.
      pair, mask, window, classify: of BERT's family.
      use_v2_feature_names, use_position_id, use_segment_ids, record_type: of its records.
      packing: one of PACKINGS, of `mlm` and of language models.
      language: of language models.

    Raises:
      UsageError: there is no such objective, or a value is not valid for it.
    """

    name: str
    copies: int = 10
    pair: PairSpec = field(default_factory=PairSpec)
    mask: MaskSpec = field(default_factory=MaskSpec)
    window: WindowSpec = field(default_factory=WindowSpec)
    use_v2_feature_names: bool = False
    use_position_id: bool = False
    record_type: str = "sequence_example"
    use_segment_ids: bool = False
    classify: ClassifySpec = field(default_factory=ClassifySpec)
    packing: str = "none"
    language: LanguageSpec = field(default_factory=LanguageSpec)

    def __post_init__(self) -> None:
        one_of("--task", self.name, OBJECTIVES)
        one_of("--record_type", self.record_type, RECORD_TYPES)
        one_of("--packing", self.packing, PACKINGS)
        at_least("--dupe_factor", self.copies, 1)

    @property
    def padded_length(self) -> int | None:
        """The tokens that every example is padded to; None where examples are not padded."""
        if self.name == "bert":
            return self.pair.max_seq_length
        if self.name == "classify":
            return self.classify.max_seq_length
        if self.name in LANGUAGE_OBJECTIVES:
            return self.row_tokens if self.language.is_padded(self.name) else None
        return self.window.max_seq_length if self.name == "mlm" else None

    @property
    def row_tokens(self) -> int:
        """The most tokens of a row of documents."""
        if self.name in LANGUAGE_OBJECTIVES:
            return self.language.row_tokens(self.name)
        return self.window.max_seq_length

    @property
    def packed_tokens(self) -> int | None:
        """The tokens of a row into which documents are packed; None where they are not."""
        return None if self.packing == "none" else self.row_tokens

    def bind(
        self,
        vocabulary: Tokenizer,
        seed: int,
        row: RowSpec,
        classes: tuple[str, ...] = (),
    ) -> Objective:
        """Returns the objective with its vocabulary.

        Args:
          vocabulary: that ids are of.
          seed: of every random choice.
          row: what is read of records beside their text.
          classes: the names of class 0, 1, …, once the input was read.

        Raises:
          UsageError: the tokenizer lacks a special token that the objective needs.
        """
        check_special_tokens(vocabulary, self.name)
        if self.name in LANGUAGE_OBJECTIVES:
            return bind_language(
                self.language, self.name, vocabulary, seed, self.copies, self.packing, row
            )
        if self.name == "bert":
            return BertObjective(
                vocabulary, seed, self.copies, self.pair, self.mask,
                self.use_v2_feature_names, self.use_position_id,
            )  # fmt: skip
        if self.name == "mlm" and self.packing != "none":
            return PackedMlmObjective(
                vocabulary, seed, self.copies, self.packing, RowSpec(), 0, None, (),
                self.window.max_seq_length, self.mask, self.use_v2_feature_names,
                self.use_segment_ids, self.use_position_id,
            )  # fmt: skip
        if self.name == "mlm":
            return MlmObjective(
                vocabulary, seed, self.copies, self.window, row.keep_fields, self.mask,
                self.use_v2_feature_names, self.use_segment_ids,
            )  # fmt: skip
        if self.name == "mlm_tokens":
            return MlmTokensObjective(
                vocabulary, seed, self.copies, self.window, row.keep_fields, self.record_type
            )
        return ClassifyObjective(
            vocabulary, self.copies, self.classify, row, classes, self.use_v2_feature_names
        )
