"""The options of vocabularies: each kind a struct of its own, and the job that learns one.

`BytePairSpec(vocab_size=8000)` is what learns, and what `recordmill vocab --kind=bpe
--vocab_size=8000` makes. Nothing heavy is imported here.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, cast

from recordmill.records.errors import UsageError
from recordmill.records.spec import Spec, option, tag_of
from recordmill.transforms.sources.input_spec import InputSpec, SourceOptions
from recordmill.transforms.text.text_spec import SPECIAL_TOKENS

Kind = Literal["wordpiece", "bpe", "unigram"]
_LEAST_WORDS = 1 << 17  # about three times the distinct words of six novels

# Options that several kinds have.
_LowerCase = Annotated[bool, option(
    "Lower-case words, and the text of the tokenizer; of wordpiece, also strip accents.",
    group="input", short="true for wordpiece, else false", default="true for wordpiece, else false",
    example="--no-do_lower_case"
)]  # fmt: skip
_MinCount = Annotated[int, option(
    "Parts of words that occur less often are no tokens, except single characters. Not of unigram.",
    ge=1, short="rarer parts of words are no tokens", value="N", example="5"
)]  # fmt: skip
_MaxUniqueChars = Annotated[int, option(
    "The maximum number of single characters, of wordpiece two tokens each; Chinese needs more. "
    "Not of bpe.", ge=1, short="single characters; Chinese needs more", value="N", example="5000"
)]  # fmt: skip


class LearnedKind(Spec, frozen=True, kw_only=True):
    """A vocabulary that is wanted.

    Attributes:
      vocab_size: the most tokens.
      special_tokens: the first of them, in this order; () are the usual ones of the kind.
      do_lower_case: words are lower-cased, and the tokenizer does so too.
    """

    group: ClassVar[str] = "vocabulary"
    usual: ClassVar[tuple[str, ...]] = ()  # special tokens

    vocab_size: Annotated[int, option(
        "The maximum number of tokens, special ones included; about so many are learned.",
        short="tokens, at most, special ones included", value="N", example="8000"
    )] = 30522  # fmt: skip
    special_tokens: Annotated[
        tuple[str, ...],
        option(
            "The first tokens of the file, in this order.",
            short="the first of the file",
            value="TOKEN,…",
            split="comma",
            default=f"of wordpiece {','.join(SPECIAL_TOKENS)}, of bpe <|endoftext|>, of unigram "
            "<pad>,</s>,<unk>",
            example="'[PAD],[UNK],[CLS],[SEP],[MASK]'",
        ),
    ] = ()
    do_lower_case: _LowerCase = False

    @property
    def name(self) -> Kind:
        """What --kind calls it."""
        return cast(Kind, tag_of(type(self)))

    @property
    def first_tokens(self) -> tuple[str, ...]:
        """The special tokens."""
        return self.special_tokens or self.usual

    def check(self) -> None:
        """Checks the special tokens, and that there is room for more."""
        tokens = self.first_tokens
        for i, token in enumerate(tokens):
            if not token or len(token.split()) != 1 or token != token.strip():
                raise UsageError(
                    "--special_tokens must be words without white space between commas, got "
                    f"{token!r}"
                )
            if token in tokens[:i]:
                raise UsageError(f"--special_tokens contains {token} twice; remove one")

    def check_size(self, more: int, parts: str) -> None:
        """Checks the size of the vocabulary.

        Args:
          more: tokens that it needs beside the special ones.
          parts: what these are, for people.

        Raises:
          UsageError: it is too small.
        """
        least = len(self.first_tokens) + more
        if self.vocab_size < least:
            raise UsageError(
                f"--vocab_size must be at least {least}: the special tokens and {parts}; got "
                f"{self.vocab_size}"
            )


class LearnSpec(LearnedKind, frozen=True, kw_only=True, tag="wordpiece", tag_field="name"):
    """BERT's vocab.txt.

    Attributes:
      min_count: pieces that occur less often are no tokens, single characters excepted.
      max_unique_chars: the most single characters; words with others are not learned from.
      min_substrings, substrings_per_token: the budget for the learner's words, in substrings, is
        the larger of the first and the second times `vocab_size`.

    Raises:
      UsageError: a value is not valid, or a special token that BERT needs is missing.
    """

    usual: ClassVar[tuple[str, ...]] = SPECIAL_TOKENS

    do_lower_case: _LowerCase = True
    min_count: _MinCount = 2
    # The learner's own default, which keeps rare ideographs from filling the vocabulary.
    max_unique_chars: _MaxUniqueChars = 1000
    min_substrings: int = 2_000_000
    substrings_per_token: int = 150

    def check(self) -> None:
        """Checks the tokens that BERT needs."""
        missing = [token for token in SPECIAL_TOKENS if token not in self.first_tokens]
        if missing:
            raise UsageError(
                f"--special_tokens must contain {','.join(SPECIAL_TOKENS)}; it lacks "
                f"{','.join(missing)}"
            )
        super().check()
        self.check_size(2, "one character, alone and within a word")

    @property
    def substrings(self) -> int:
        """The budget for the learner's words, in substrings."""
        return max(self.min_substrings, self.substrings_per_token * self.vocab_size)

    @property
    def most_words(self) -> int:
        """About how many words the budget holds: those of English have some 36 substrings."""
        return self.substrings // 36

    @property
    def characters(self) -> int:
        """The most single characters, each of which takes two tokens; a quarter is left."""
        room = self.vocab_size - len(self.first_tokens)
        return max(1, min(self.max_unique_chars, room * 3 // 8))


class BytePairSpec(LearnedKind, frozen=True, kw_only=True, tag="bpe", tag_field="name"):
    """A Hugging Face tokenizer.json of byte-level BPE; the 256 bytes follow the special tokens.

    Attributes:
      min_count: pairs that occur less often are not merged.

    Raises:
      UsageError: a value is not valid.
    """

    usual: ClassVar[tuple[str, ...]] = ("<|endoftext|>",)

    min_count: _MinCount = 2

    def check(self) -> None:
        """Checks that no special token stands for a byte."""
        from recordmill.transforms.subwords.byte_pairs import byte_letters

        super().check()
        letters = [token for token in self.first_tokens if token in byte_letters()]
        if letters:
            raise UsageError(f"--special_tokens contains {letters[0]}, which stands for a byte")
        self.check_size(256, "256 bytes")

    @property
    def most_words(self) -> int:
        """About how many words are learned from; the most frequent ones."""
        return max(_LEAST_WORDS, 8 * self.vocab_size)


class UnigramSpec(LearnedKind, frozen=True, kw_only=True, tag="unigram", tag_field="name"):
    """A SentencePiece .model.

    Attributes:
      max_unique_chars: the most single characters; words with others are not learned from.

    Raises:
      UsageError: a value is not valid, or <unk> is missing.
    """

    usual: ClassVar[tuple[str, ...]] = ("<pad>", "</s>", "<unk>")

    max_unique_chars: _MaxUniqueChars = 1000

    def check(self) -> None:
        """Checks the token that SentencePiece needs."""
        super().check()
        if "<unk>" not in self.first_tokens:
            raise UsageError("--special_tokens must contain <unk> for --kind=unigram; it lacks it")
        self.check_size(4, "some characters")

    @property
    def most_words(self) -> int:
        """About how many words are learned from; the most frequent ones."""
        return max(_LEAST_WORDS, 4 * self.vocab_size)

    @property
    def characters(self) -> int:
        """The most single characters; a quarter of the tokens is left for longer ones."""
        room = self.vocab_size - len(self.first_tokens)
        return max(1, min(self.max_unique_chars, room * 3 // 4))


AnyKind = LearnSpec | BytePairSpec | UnigramSpec


class VocabSpec(Spec, frozen=True, kw_only=True):
    """`recordmill vocab`: all of its options.

    Attributes:
      input: where text is; `source`: how it lies in files.
      output: the vocabulary file.
      overwrite: replace the file that is there.
      kind: the vocabulary wanted.
    """

    group: ClassVar[str] = "output"

    input: InputSpec = InputSpec()
    source: SourceOptions = SourceOptions()
    kind: Annotated[AnyKind, option(
        "wordpiece writes BERT's vocab.txt; bpe a Hugging Face tokenizer.json of byte-level BPE, "
        "as GPT-2's; unigram a SentencePiece .model, as T5's.", group="vocabulary",
        short="wordpiece, bpe (tokenizer.json) or unigram (.model)", value="KIND", example="bpe"
    )] = LearnSpec()  # fmt: skip
    output: Annotated[str, option(
        "The vocabulary file, local or gs://….", group="output", short="local or gs://…",
        value="FILE", path="file", of_run=True, fingerprint=False, default="required",
        example="vocab.txt"
    )] = ""  # fmt: skip
    overwrite: Annotated[bool, option(
        "Replace the file in --output.", group="output", short="replace the file that is there",
        of_run=True, fingerprint=False
    )] = False  # fmt: skip
