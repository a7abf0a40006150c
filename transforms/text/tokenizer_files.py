"""Tokenizer files of all kinds, told apart by their content.

A dataset and its job store one file: GPT-2's two, and tiktoken's, are read as one tokenizer.json of
the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from recordmill.records.errors import UsageError
from recordmill.transforms.subwords.errors import unusable
from recordmill.transforms.subwords.hugging_face import JsonTokenizer, gpt2_tokenizer
from recordmill.transforms.subwords.sentence_pieces import PieceTokenizer
from recordmill.transforms.subwords.tiktoken_file import is_tiktoken, tiktoken_tokenizer
from recordmill.transforms.subwords.tokenizer import Tokenizer
from recordmill.transforms.text.text_spec import SPECIAL_TOKENS
from recordmill.transforms.text.tokenization import Vocabulary
from recordmill.transforms.text.word_piece_file import WordPieceFile

# GPT-2's two files, by the names that they have here and there; what stands before may be anything.
_SIBLINGS = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
_FORMS = (
    "BERT's vocab.txt, a Hugging Face tokenizer.json, GPT-2's encoder.json beside its vocab.bpe, "
    "a SentencePiece .model, or a .tiktoken file"
)


def load_tokenizer(data: bytes, source: str) -> Tokenizer:
    """Returns the tokenizer of a file's content.

    Args:
      data: the content; GPT-2's two files and tiktoken's go through `read_tokenizer`.
      source: the path, for messages.

    Raises:
      UsageError: it is no tokenizer, or one that cannot be used.
    """
    if data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        tokenizer = JsonTokenizer(data, source)
        return WordPieceFile(data, source) if tokenizer.kind == "wordpiece" else tokenizer
    if data[:1] == b"\n" and b"\0" in data[:4096]:
        return PieceTokenizer(data, source)
    if not any(token.encode() in data for token in SPECIAL_TOKENS):
        raise UsageError(f"--vocab_file {source} must be {_FORMS}; it is none of these")
    return Vocabulary.from_bytes(data, source)


def read_tokenizer(path: str, read: Callable[[str], bytes]) -> tuple[bytes, Tokenizer]:
    """Reads a tokenizer, and for GPT-2's also the file beside it.

    Args:
      path: of the file; of GPT-2's two, one of them, or both with a comma.
      read: path -> content; it raises the error of a file that cannot be read.

    Returns:
      The content to store, from which `load_tokenizer` makes the same tokenizer, and that.

    Raises:
      UsageError: it is no tokenizer, or one that cannot be used.
    """
    named = _pair_of(path)
    data = b"" if named and "," in path else read(path)
    if named is None and _is_encoder(data):
        raise unusable(path, "its merges are missing: give --tokenizer=encoder.json,vocab.bpe")
    if named and (not data or not data.lstrip().startswith(b"{") or _is_encoder(data)):
        tokenizer = gpt2_tokenizer(read(named[0]), read(named[1]), path)
        return tokenizer.data, tokenizer
    if is_tiktoken(data):
        tokenizer = tiktoken_tokenizer(data, path)
        return tokenizer.data, tokenizer
    loaded = load_tokenizer(data, path)
    if isinstance(loaded, JsonTokenizer):
        loaded.try_out()
    return data, loaded


def _pair_of(path: str) -> tuple[str, str] | None:
    """Returns the paths of encoder and merges, None where the name is not that of one of them."""
    first, comma, second = path.partition(",")
    if comma:
        is_encoder = first.endswith(".json")
        return (first, second) if is_encoder else (second, first)
    for encoder, merges in _SIBLINGS:
        if path.endswith(encoder):
            return path, path.removesuffix(encoder) + merges
        if path.endswith(merges):
            return path.removesuffix(merges) + encoder, path
    return None


def _is_encoder(data: bytes) -> bool:
    """Tells whether this is an encoder.json: one object from tokens to ids."""
    if not data.lstrip().startswith(b"{"):
        return False
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return False
    # "model" is a token of GPT-2's too.
    return (
        isinstance(content, dict) and bool(content) and not isinstance(content.get("model"), dict)
    )
