"""tiktoken's files of ranks (cl100k_base.tiktoken, Llama 3's tokenizer.model), as a tokenizer.json.

A file has tokens and their ranks, which are their ids, and nothing else: how text is cut, and which
special tokens there are, follows from the name of the encoding, or from the number of tokens.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from recordmill.transforms.subwords.byte_pairs import byte_letters
from recordmill.transforms.subwords.errors import unusable
from recordmill.transforms.subwords.hugging_face import JsonTokenizer

_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CASE
    + r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CASE
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # fmt: skip
_LLAMA3 = (
    "<|begin_of_text|>", "<|end_of_text|>",
    *(f"<|reserved_special_token_{i}|>" for i in range(4)),
    "<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>",
    *(f"<|reserved_special_token_{i}|>" for i in range(5, 251)),
)  # fmt: skip


class _Encoding(NamedTuple):
    name: str
    tokens: int  # in the file
    pattern: str
    special: Mapping[str, int]
    normalizer: Mapping[str, str] | None = None


_ENCODINGS = {  # by what a name has, as openai/tiktoken, meta-llama/llama3 and QwenLM/Qwen say
    "r50k": _Encoding("r50k", 50_256, _GPT2, {"<|endoftext|>": 50_256}),
    "gpt2": _Encoding("gpt2", 50_256, _GPT2, {"<|endoftext|>": 50_256}),
    "p50k": _Encoding("p50k", 50_280, _GPT2, {"<|endoftext|>": 50_256}),
    "cl100k": _Encoding(
        "cl100k", 100_256, _CL100K,
        {
            "<|endoftext|>": 100_257, "<|fim_prefix|>": 100_258, "<|fim_middle|>": 100_259,
            "<|fim_suffix|>": 100_260, "<|endofprompt|>": 100_276,
        },
    ),
    "o200k": _Encoding(
        "o200k", 199_998, _O200K, {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}
    ),
    "llama3": _Encoding(
        "llama3", 128_000, _CL100K, {token: 128_000 + i for i, token in enumerate(_LLAMA3)}
    ),
    "qwen": _Encoding(
        "qwen", 151_643, _CL100K.replace("{1,3}", ""),
        {"<|endoftext|>": 151_643, "<|im_start|>": 151_644, "<|im_end|>": 151_645},
        {"type": "NFC"},
    ),
}  # fmt: skip


def is_tiktoken(data: bytes) -> bool:
    """Returns whether the content of a file is lines of a token in base64 and its rank."""
    return _LINE.match(data) is not None


def tiktoken_tokenizer(data: bytes, source: str) -> JsonTokenizer:
    """Returns the tokenizer of a file of ranks, as a tokenizer.json with the ids of tiktoken.

    Args:
      data: the content.
      source: its path, whose name says the encoding.

    Raises:
      UsageError: it is damaged, or of an encoding that is not known.
    """
    ranks = _ranks(data, source)
    encoding = _encoding(source, len(ranks))
    if len(ranks) != encoding.tokens:
        raise unusable(
            source,
            f"it has {len(ranks):,} tokens, and {encoding.name} has {encoding.tokens:,}: it is cut "
            "off, or of another encoding than its name says",
        )
    if not set(ranks.values()).isdisjoint(encoding.special.values()):
        raise unusable(source, f"a token of it has the id of a special token of {encoding.name}")
    letters = {byte: letter for letter, byte in byte_letters().items()}
    spelled = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = [
        [spelled[token[:cut]], spelled[token[cut:]]]
        for token in sorted(ranks, key=ranks.__getitem__)
        for cut in _cuts(token, ranks)
    ]
    split = {"type": "Split", "pattern": {"Regex": encoding.pattern}, "behavior": "Isolated"}
    content: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": number, "content": token, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True,
            }
            for token, number in encoding.special.items()
        ],
        "normalizer": encoding.normalizer,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                split | {"invert": False},
                {
                    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
            "ignore_merges": True, "vocab": {spelled[t]: rank for t, rank in ranks.items()},
            "merges": merges,
        },
    }  # fmt: skip
    return JsonTokenizer(json.dumps(content).encode(), source)


def _ranks(data: bytes, source: str) -> dict[bytes, int]:
    """Returns the tokens of a file, and the rank of each."""
    ranks: dict[bytes, int] = {}
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        token, _, rank = line.partition(b" ")
        try:
            spelled = base64.b64decode(token, validate=True)
        except binascii.Error:
            spelled = b""
        if not spelled or not rank.isdigit():
            raise unusable(source, f"its line {number} is no token in base64 and a rank")
        ranks[spelled] = int(rank)
    if len(ranks) < len(lines) or len(set(ranks.values())) < len(ranks):
        raise unusable(source, "a token or a rank stands in it twice")
    missing = sum(bytes([byte]) not in ranks for byte in range(256))
    if missing:
        raise unusable(source, f"{missing} of the 256 bytes are no tokens of it")
    return ranks


def _cuts(token: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """Returns where a token can be two tokens, which tiktoken joins by the rank of the whole."""
    places = [at for at in range(1, len(token)) if token[:at] in ranks and token[at:] in ranks]
    return sorted(places, key=lambda at: (ranks[token[:at]], ranks[token[at:]]))


def _encoding(source: str, tokens: int) -> _Encoding:
    name = os.path.basename(source).lower().replace("-", "").replace("_", "")
    for key, encoding in _ENCODINGS.items():
        if key in name:
            return encoding
    for encoding in _ENCODINGS.values():
        if encoding.tokens == tokens:
            return encoding
    raise unusable(
        source,
        "neither its name nor its number of tokens says how text is cut: name it after its "
        f"encoding, one of {', '.join(_ENCODINGS)}",
    )
