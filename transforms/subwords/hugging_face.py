"""Hugging Face's tokenizer.json, and GPT-2's two files, which become one.

What is added around text (`post_processor`), truncated or padded by such a file is the objective's
affair, and left out: the ids are those of `encode(line, add_special_tokens=False)`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any

import msgspec
import numpy as np
from tokenizers import Tokenizer as LibraryModel

from recordmill.records.arrays import Bools
from recordmill.records.errors import RunError
from recordmill.records.state import FormatError, decode
from recordmill.transforms.subwords.byte_pairs import (
    BytePairs,
    awkward_lines,
    lines_of_fastokens,
    quick_pairs,
)
from recordmill.transforms.subwords.errors import (
    LibraryPanicError,
    panics_as_errors,
    unusable,
)
from recordmill.transforms.subwords.library_lines import LibraryTokenizer
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.subwords.quick_json import (
    cut_json,
    library_normalizer,
    prepare_json,
    unigram_json,
)
from recordmill.transforms.subwords.remembered import WordMemoryTokenizer
from recordmill.transforms.subwords.tokenizer import LineTokenizer, SpecialTokens
from recordmill.transforms.subwords.trial import find_fault
from recordmill.transforms.subwords.word_models import Model

_KINDS = {"BPE": "bpe", "Unigram": "unigram", "WordPiece": "wordpiece"}
_MOST_IDS = 1 << 24
_SHOWN = 80  # characters of a line
_LIKE_ADDED = re.compile(r"<.+>|\[.+\]")  # spelled as added tokens are
_NEVER_IN_TEXT = "\U0010fffe\U0010ffff"  # these are no characters
_Id = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_IDS)]


class AddedToken(msgspec.Struct, frozen=True):
    """A token that is found in the text before the model sees it.

    Attributes:
      special: it stands for no text of a document, unless special tokens are allowed.
      normalized: it is looked for in the normalized text.
    """

    id: _Id
    content: str
    special: bool = False
    normalized: bool = True


class _Model(msgspec.Struct, frozen=True):
    vocab: dict[str, _Id] | list[tuple[str, float]]
    type: str = ""
    dropout: float | None = None
    continuing_subword_prefix: str | None = None


class _File(msgspec.Struct, frozen=True):
    """tokenizer.json, as far as it is read here; the library reads all of it."""

    model: _Model
    added_tokens: list[AddedToken] = msgspec.field(default_factory=list)
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None


@dataclass(frozen=True)
class JsonTokenizer:
    """A tokenizer.json.

    Attributes:
      data: the file's content.
      source: its path.
      lines_of_fastokens: see `byte_pairs.quick_pairs`; None: it is found out.

    Raises:
      UsageError: it is none, or has a model of another kind.
    """

    data: bytes
    source: str
    stored_name: str = "tokenizer.json"
    lines_of_fastokens: str | None = None

    def __post_init__(self) -> None:
        model = self.file.model
        if self.kind not in _KINDS.values():
            raise unusable(self.source, f"its model is {model.type!r}, not {_listed()}")
        if model.dropout:
            raise unusable(self.source, "its model has dropout, which draws at random; set it to 0")

    @cached_property
    def file(self) -> _File:
        """The content of the file."""
        try:
            return decode(self.data, _File)
        except FormatError as error:
            raise unusable(self.source, f"of a tokenizer.json, {error}") from error

    @cached_property
    def kind(self) -> str:
        """See `Tokenizer`."""
        model = self.file.model
        return _KINDS.get(model.type, "" if model.type else _kind_of_old_files(model))

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """See `Tokenizer`."""
        vocab = self.file.model.vocab
        words = vocab if isinstance(vocab, dict) else {w: i for i, (w, _) in enumerate(vocab)}
        return words | {token.content: token.id for token in self.file.added_tokens}

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """See `Tokenizer`."""
        tokens = [""] * (max(self.ids.values(), default=-1) + 1)
        for token, token_id in self.ids.items():
            tokens[token_id] = token
        return tuple(tokens)

    @cached_property
    def special(self) -> SpecialTokens:
        """See `Tokenizer`; where no token is added, those of the vocabulary are looked at."""
        added = {token.content: token.id for token in self.file.added_tokens}
        return SpecialTokens.find(added or self.ids)

    @cached_property
    def checksum(self) -> str:
        """See `Tokenizer`."""
        return hashlib.blake2b(self.data, digest_size=16).hexdigest()

    @cached_property
    def continues_word(self) -> Bools:
        """See `Tokenizer`: in BPE and Unigram, words begin at spaces."""
        special = {token.content for token in self.file.added_tokens}
        if self.kind == "wordpiece":
            prefix = self.file.model.continuing_subword_prefix or "##"
            return np.array([token.startswith(prefix) for token in self.tokens], np.bool_)
        starts = ("Ġ", "Ċ", "ĉ", "▁", " ")
        return np.array([t not in special and not t.startswith(starts) for t in self.tokens])

    @property
    def share_of_capitals(self) -> float | None:
        """None: the file says itself whether text is lower-cased."""
        return None

    def __len__(self) -> int:
        return len(self.tokens)

    def try_out(self) -> None:
        """Checks that the libraries survive the file; see `trial.py`.

        Raises:
          UsageError: they do not.
        """
        fault = find_fault(self.data, tuple(awkward_lines(self._spellings)))
        if fault:
            raise unusable(self.source, fault)

    def library(self, *, allow_special_tokens: bool = True) -> Any:
        """Returns the tokenizer of `tokenizers`.

        Args:
          allow_special_tokens: it finds special tokens in text.

        Raises:
          UsageError: the library cannot read the file.
        """
        return _load(self, allow_special_tokens)

    def start(self, *, lower_case: bool, allow_special_tokens: bool = False) -> LineTokenizer:
        """See `Tokenizer`."""
        quick = self._quick(allow_special_tokens)
        return quick or library_lines(self.library(allow_special_tokens=allow_special_tokens))

    def _quick(self, allow_special_tokens: bool) -> LineTokenizer | None:
        """Returns what does most lines faster than the library, None where nothing does."""
        if self.kind == "bpe":
            lines = self.lines_of_fastokens
            if lines is None:
                lines = self.compare((), allow_special_tokens=allow_special_tokens)
            pairs = _pairs(self.data, allow_special_tokens) if lines else None
            if pairs is None:
                return None
            library = partial(self.library, allow_special_tokens=allow_special_tokens)
            return quick_pairs(pairs, lambda: library_lines(library()), self._spellings, lines)
        library = self.library(allow_special_tokens=allow_special_tokens)
        added = [t for t in self.file.added_tokens if allow_special_tokens or not t.special]
        if self.file.normalizer and any(token.normalized for token in added):
            return None
        parts = _translate(self)
        if parts is None:
            return None
        preparation, model = parts
        spellings = [token.content for token in added]
        return QuickTokenizer(
            WordMemoryTokenizer(model), preparation, lambda: library_lines(library), spellings
        )

    def compare(self, texts: Sequence[str], *, allow_special_tokens: bool) -> str:
        """Returns which lines of a BPE fastokens does, with the ids of `tokenizers`; "" for none.

        Args:
          texts: of the corpus.
          allow_special_tokens: see `start`.

        Raises:
          UsageError: `tokenizers` cannot read the file.
        """
        library = library_lines(self.library(allow_special_tokens=allow_special_tokens))
        pairs = _pairs(self.data, allow_special_tokens)
        return lines_of_fastokens(pairs, library, self._spellings, texts) if pairs else ""

    @cached_property
    def _spellings(self) -> list[str]:
        added = {token.content: None for token in self.file.added_tokens}
        like_added = filter(_LIKE_ADDED.fullmatch, map(str, self.file.model.vocab))
        return [*(added | dict.fromkeys(like_added))]

    @cached_property
    def special_pieces(self) -> frozenset[str]:
        """The special tokens, which are pieces of a Unigram too, and never found in text."""
        return frozenset(token.content for token in self.file.added_tokens if token.special)

    def decode(self, ids: Iterable[int]) -> str:
        """See `Tokenizer`."""
        text: str = self.library().decode(list(ids), skip_special_tokens=False)
        return text


@lru_cache(maxsize=1)
def _translate(tokenizer: JsonTokenizer) -> tuple[Preparation, Model] | None:
    """Returns the parts of a tokenizer for kernels, None where these cannot do it.

    They take most of a second to make, and a job starts its tokenizer more than once.
    """
    normalizer = tokenizer.file.normalizer
    normalize = library_normalizer(tokenizer.library()) if normalizer else str
    prepared = prepare_json(normalizer, normalize)
    cut = cut_json(tokenizer.file.pre_tokenizer, prepared) if prepared else None
    if cut is None:
        return None
    runs, preparation = cut
    content = json.loads(tokenizer.data)["model"]
    model = unigram_json(content, tokenizer.special_pieces, runs=runs)
    return None if model is None else (preparation, model)


@lru_cache(maxsize=2)
def _pairs(data: bytes, allow_special_tokens: bool) -> BytePairs | None:
    """Returns the pairs of a file, None where fastokens cannot do it."""
    try:
        return BytePairs(data, allow_special_tokens=allow_special_tokens)
    except ValueError:
        return None


def forget_libraries() -> None:
    """Frees what libraries hold of a tokenizer, until it is started again."""
    _pairs.cache_clear()
    _load.cache_clear()


@lru_cache(maxsize=2)
def _load(tokenizer: JsonTokenizer, allow_special_tokens: bool) -> Any:
    text = tokenizer.data.decode("utf-8")
    if tokenizer.kind == "unigram" and not allow_special_tokens:
        text = _without_special_pieces(json.loads(text))
    try:
        with panics_as_errors():
            model = LibraryModel.from_str(text)
    except Exception as error:  # the library raises no narrower type
        raise unusable(tokenizer.source, error) from error
    model.no_truncation()
    model.no_padding()
    model.encode_special_tokens = not allow_special_tokens
    return model


def library_lines(library: Any) -> LineTokenizer:
    """Returns what gives all lines to a tokenizer of `tokenizers`."""

    def encode(lines: list[str]) -> list[list[int]]:
        try:
            with panics_as_errors():
                encodings = library.encode_batch_fast(lines, add_special_tokens=False)
        except LibraryPanicError as error:
            if len(lines) > 1:
                return [encode([line])[0] for line in lines]
            raise RunError(
                f"the library of --tokenizer fails with a line of the input: {error}: "
                f"{lines[0][:_SHOWN]!r}; leave the line out, or use another tokenizer"
            ) from error
        return [encoding.ids for encoding in encodings]

    return LibraryTokenizer(encode)


def _without_special_pieces(content: dict[str, Any]) -> str:
    """Returns a Unigram that finds no special token in text.

    The library's own switch does not reach the model, of whose pieces special tokens are the best.
    """
    special = {token["content"] for token in content["added_tokens"] if token.get("special")}
    content["added_tokens"] = [t for t in content["added_tokens"] if not t.get("special")]
    content["model"]["vocab"] = [
        (_NEVER_IN_TEXT + piece if piece in special else piece, score)
        for piece, score in content["model"]["vocab"]
    ]
    return json.dumps(content)


def _listed() -> str:
    return " or ".join((", ".join(list(_KINDS)[:-1]), list(_KINDS)[-1]))


def _kind_of_old_files(model: _Model) -> str:
    """Returns the kind of a model without a type, by what it has."""
    if isinstance(model.vocab, list):
        return "unigram"
    return "wordpiece" if model.continuing_subword_prefix == "##" else "bpe"


def gpt2_tokenizer(encoder: bytes, merges: bytes, source: str) -> JsonTokenizer:
    """Returns GPT-2's encoder.json and vocab.bpe as one tokenizer.json with the same ids.

    Raises:
      UsageError: they are not these files.
    """
    try:
        vocab = decode(encoder, dict[str, _Id])
    except FormatError as error:
        raise unusable(source, f"of an encoder.json, {error}") from error
    try:
        lines = merges.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise unusable(source, f"its vocab.bpe must be UTF-8: {error}") from error
    lines = lines[1:] if lines[0].startswith("#version") else lines
    pairs = [line.rstrip("\r") for line in lines if line.strip()]
    for pair in pairs:
        left, space, right = pair.partition(" ")
        if not space or not {left, right, left + right} <= vocab.keys():
            raise unusable(source, f"its vocab.bpe merges {pair!r}, not in encoder.json")
    added = [token for token in ("<|endoftext|>",) if token in vocab]
    return JsonTokenizer(json.dumps(byte_level_file(vocab, pairs, added)).encode(), source)


def byte_level_file(vocab: dict[str, int], merges: list[str], added: list[str]) -> dict[str, Any]:
    """Returns the content of the tokenizer.json of a BPE as GPT-2's.

    Args:
      vocab: token -> id, in letters that stand for bytes.
      merges: "left right" each, in order.
      added: the special tokens in `vocab`.
    """
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": vocab[token], "content": token, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True,
            }
            for token in added
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None,
            "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
            "vocab": vocab, "merges": merges,
        },
    }  # fmt: skip
