"""Tokenizer files are told apart by content, and read as their libraries read them."""

from __future__ import annotations

import base64
import itertools
import json
import random
import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
import sentencepiece
from tokenizers import Tokenizer as LibraryModel

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords import hugging_face, sentence_pieces, tiktoken_file
from recordmill.transforms.subwords.byte_pairs import byte_letters
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.subwords.tokenizer import SpecialTokens, Tokenizer
from recordmill.transforms.text.tokenizer_files import load_tokenizer, read_tokenizer

from . import trained
from .test_byte_pairs import mixed_text

VOCAB_TXT = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nwater\n##s\n"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {
        "vocab.txt": VOCAB_TXT,
        "bpe.json": trained.byte_pairs(),
        "unigram.json": trained.unigram_json(),
        "wordpiece.json": trained.word_pieces_json(),
        "unigram.model": trained.pieces("unigram"),
        "bpe.model": trained.pieces("bpe"),
    }


def ids_of(
    tokenizer: Tokenizer, lines: list[str], *, allow_special_tokens: bool = False
) -> list[list[int]]:
    started = tokenizer.start(lower_case=True, allow_special_tokens=allow_special_tokens)
    tokens = started.tokenize(Lines.from_list([line.encode() for line in lines]))
    assert tokens.ids.dtype == np.int32
    splits = tokens.row_splits.tolist()
    return [tokens.ids[a:b].tolist() for a, b in itertools.pairwise(splits)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("vocab.txt", "wordpiece"), ("bpe.json", "bpe"), ("unigram.json", "unigram"),
     ("wordpiece.json", "wordpiece"), ("unigram.model", "unigram"), ("bpe.model", "bpe")],
)  # fmt: skip
def test_kind_and_ids(files: dict[str, bytes], name: str, kind: str) -> None:
    tokenizer = load_tokenizer(files[name], name)
    assert tokenizer.kind == kind
    assert len(tokenizer) == len(tokenizer.tokens) == len(tokenizer.continues_word)
    assert all(tokenizer.tokens[i] == token for token, i in tokenizer.ids.items())
    stored = "spiece.model" if name.endswith(".model") else "tokenizer.json"
    assert tokenizer.stored_name == ("vocab.txt" if name == "vocab.txt" else stored)
    assert len(tokenizer.checksum) == 32
    (ids,) = ids_of(tokenizer, ["the water"])
    assert tokenizer.decode(ids) == "the water"


def test_gpt2_files_are_one_tokenizer(files: dict[str, bytes]) -> None:
    whole = json.loads(files["bpe.json"])
    encoder = json.dumps(whole["model"]["vocab"]).encode()
    merges = "\n".join(["#version: 0.2", *(" ".join(m) for m in whole["model"]["merges"]), ""])
    stored = {"my-encoder.json": encoder, "my-vocab.bpe": merges.encode()}
    expected = ids_of(load_tokenizer(files["bpe.json"], "x"), trained.TEXT)
    for path in ("my-encoder.json", "my-vocab.bpe", "my-vocab.bpe,my-encoder.json"):
        data, tokenizer = read_tokenizer(path, stored.__getitem__)
        assert ids_of(tokenizer, trained.TEXT) == expected
        again = load_tokenizer(data, "again")
        assert again.checksum == tokenizer.checksum
        assert again.special == SpecialTokens(end_of_text_id=again.ids["<|endoftext|>"])


def test_special_tokens_by_role(files: dict[str, bytes]) -> None:
    assert load_tokenizer(VOCAB_TXT, "v").special == SpecialTokens(
        pad_id=0, unknown_id=1, cls_id=2, sep_id=3, mask_id=4
    )
    assert load_tokenizer(files["bpe.json"], "b").special == SpecialTokens(
        pad_id=1, unknown_id=3, begin_of_text_id=0, end_of_text_id=5, mask_id=4, cls_id=0, sep_id=2
    )
    special = load_tokenizer(files["unigram.model"], "m").special
    assert (special.unknown_id, special.begin_of_text_id, special.end_of_text_id) == (0, 1, 2)
    sentinels = [f"<extra_id_{i}>" for i in (0, 1, 10, 2)]
    model = trained.pieces(user_defined_symbols=sentinels, pad_id=3)
    tokenizer = load_tokenizer(model, "m")
    spelled = [tokenizer.tokens[i] for i in tokenizer.special.sentinel_ids]
    assert spelled == ["<extra_id_0>", "<extra_id_1>", "<extra_id_2>", "<extra_id_10>"]
    assert tokenizer.special.pad_id == 3


@pytest.mark.parametrize("name", ["bpe.json", "unigram.json", "wordpiece.json"])
def test_special_tokens_in_text_of_json(files: dict[str, bytes], name: str) -> None:
    tokenizer = load_tokenizer(files[name], name)
    line = "the <s> water</s> [MASK] dog <mask><|endoftext|>"
    library = LibraryModel.from_str(files[name].decode())
    allowed = library.encode(line, add_special_tokens=False).ids
    library.encode_special_tokens = True
    as_text = library.encode(line, add_special_tokens=False).ids
    assert as_text != allowed
    found = ids_of(tokenizer, [line, "x"])[0]
    if tokenizer.kind == "unigram":  # the library finds <s> among the pieces all the same
        special = {tokenizer.ids[token] for token in trained.SPECIAL}
        assert special & set(as_text)
        assert special & set(found) <= {tokenizer.special.unknown_id}
    else:
        assert found == as_text
    assert ids_of(tokenizer, [line, "x"], allow_special_tokens=True)[0] == allowed


def test_special_tokens_in_text_of_pieces(files: dict[str, bytes]) -> None:
    tokenizer = load_tokenizer(files["unigram.model"], "m")
    library = sentencepiece.SentencePieceProcessor(model_proto=files["unigram.model"])
    assert ids_of(tokenizer, ["the</s>dog"]) == [library.encode("the</s>dog")]
    assert ids_of(tokenizer, ["the</s>dog"], allow_special_tokens=True) == [
        [*library.encode("the"), library.eos_id(), *library.encode("dog")]
    ]


def _changed(change: Callable[[dict], None]) -> bytes:
    content = json.loads(trained.byte_pairs(size=300))
    change(content)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "must be BERT's vocab.txt"),
        (b"some\nwords\n", "must be BERT's vocab.txt"),
        (b"[UNK]\nthe\n", r"--vocab_file x must contain \[PAD\], "),
        (b"{", "of a tokenizer.json, it is cut or no JSON"),
        (b'{"a": 1}', "of a tokenizer.json, model is missing"),
        (b'{"model": {"type": "WordLevel", "vocab": {}}}', "its model is 'WordLevel', not BPE, "),
        (b'{"model": {"type": "BPE", "vocab": {"a": -1}}}', "vocab"),
        (b"\n\x00\x00", "of a SentencePiece model, "),
        (trained.pieces("char"), "its model_type is neither unigram nor bpe"),
        (_changed(lambda c: c["model"].update(dropout=0.1)), "dropout"),
    ],
    ids=range(10),
)
def test_what_is_no_tokenizer(data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load_tokenizer(data, "x")
    assert "\n" not in str(caught.value)


def test_a_library_that_cannot_read_the_file(files: dict[str, bytes]) -> None:
    broken = _changed(lambda content: content["model"].update(merges=[["no", "such"]]))
    with pytest.raises(UsageError, match="--tokenizer x cannot be used") as caught:
        load_tokenizer(broken, "x").start(lower_case=True)
    assert "\n" not in str(caught.value)
    cut = files["unigram.model"][:-300]
    with pytest.raises(UsageError, match="--tokenizer x cannot be used: of a SentencePiece model"):
        load_tokenizer(cut, "x")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("other.json", "its merges are missing"),
        ("bad-encoder.json", "its vocab.bpe merges 'q x', not in encoder.json"),
        ("bytes-encoder.json", "its vocab.bpe must be UTF-8"),
    ],
)
def test_what_is_not_gpt2s(path: str, message: str) -> None:
    stored = {
        "other.json": b'{"a": 0}', "bad-encoder.json": b'{"q": 0}', "bad-vocab.bpe": b"q x\n",
        "bytes-encoder.json": b'{"q": 0}', "bytes-vocab.bpe": b"\xff \xff\n",
    }  # fmt: skip
    with pytest.raises(UsageError, match=message):
        read_tokenizer(path, stored.__getitem__)


def test_more_ids_than_16_bits() -> None:
    content = json.loads(trained.byte_pairs(size=300))
    content["model"]["vocab"] = {
        token: i + 70_000 for token, i in content["model"]["vocab"].items()
    }
    for token in content["added_tokens"]:
        token["id"] += 70_000
    tokenizer = load_tokenizer(json.dumps(content).encode(), "x")
    assert len(tokenizer) > 70_000
    assert min(ids_of(tokenizer, ["the"])[0]) >= 70_000


@pytest.mark.parametrize("name", ["unigram.json", "unigram.model"])
def test_the_parts_for_kernels_are_made_once(
    files: dict[str, bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    module, parts = hugging_face, "prepare_json"
    if name.endswith("model"):
        module, parts = sentence_pieces, "prepare_pieces"
    make = getattr(module, parts)

    def count(*args: object) -> object:
        made.append(parts)
        return make(*args)

    monkeypatch.setattr(module, parts, count)
    tokenizer = load_tokenizer(files[name], f"once/{name}")
    assert isinstance(tokenizer.start(lower_case=False), QuickTokenizer)
    assert isinstance(tokenizer.start(lower_case=True), QuickTokenizer)
    assert made == [parts]


def _ranks(pattern: str, size: int = 900) -> dict[bytes, int]:
    """Learned tokens and their ranks, as tiktoken has them."""
    content = json.loads(trained.byte_pairs(pattern, size=size))
    letters = byte_letters()
    learned = sorted(content["model"]["vocab"].items(), key=lambda item: item[1])
    tokens = [t for t, _ in learned if t not in (*trained.SPECIAL, "<|endoftext|>")]
    return {bytes(letters[c] for c in token): rank for rank, token in enumerate(tokens)}


def _file(ranks: dict[bytes, int]) -> bytes:
    return b"".join(b"%s %d\n" % (base64.b64encode(t), rank) for t, rank in ranks.items())


@pytest.mark.parametrize(
    "name", ["r50k_base.tiktoken", "cl100k_base.tiktoken", "o200k_base.tiktoken", "qwen.tiktoken"]
)
def test_ids_of_ranks_are_those_of_tiktoken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    encoding = tiktoken_file._ENCODINGS[name.partition(".")[0].partition("_")[0]]
    ranks = _ranks(encoding.pattern)
    key = encoding.name
    monkeypatch.setitem(tiktoken_file._ENCODINGS, key, encoding._replace(tokens=len(ranks)))
    data, tokenizer = read_tokenizer(f"some/{name}", lambda _: _file(ranks))
    assert load_tokenizer(data, "vocab.txt").checksum == tokenizer.checksum
    assert tokenizer.special.end_of_text_id == encoding.special["<|endoftext|>"]
    reference = tiktoken.Encoding(
        name, pat_str=encoding.pattern, mergeable_ranks=ranks, special_tokens=dict(encoding.special)
    )
    rng = random.Random(4)
    lines = [*trained.TEXT, *mixed_text(60_000), *("a" * rng.randint(1, 60) for _ in range(50))]
    if encoding.normalizer:
        lines = [unicodedata.normalize("NFC", line) for line in lines]
    assert ids_of(tokenizer, lines) == [reference.encode_ordinary(line) for line in lines]


def test_the_number_of_ranks_says_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = _ranks(trained.LLAMA3)
    small = tiktoken_file._ENCODINGS["llama3"]._replace(tokens=len(ranks))
    monkeypatch.setitem(tiktoken_file._ENCODINGS, "llama3", small)
    _, tokenizer = read_tokenizer("original/tokenizer.model", lambda _: _file(ranks))
    assert tokenizer.ids["<|begin_of_text|>"] == 128_000
    assert tokenizer.ids["<|eot_id|>"] == 128_009
    assert tokenizer.ids["<|reserved_special_token_250|>"] == 128_255


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("my.tiktoken", lambda data: data, "name it after its encoding, one of r50k, gpt2, p50k"),
        ("cl100k.tiktoken", lambda data: data[:1000] + b"!\n", "its line .* is no token in base64"),
        (
            "cl100k.tiktoken",
            lambda data: data[: data.index(b" 9\n") + 3],
            "of the 256 bytes are no",
        ),
        ("cl100k.tiktoken", lambda data: data, "and cl100k has 100,256: it is cut off, or of anot"),
        (
            "cl100k.tiktoken",
            lambda data: data + data.splitlines(True)[-1],
            "stands in it twice",
        ),
        ("cl100k.tiktoken", lambda data: data + b"AAAA 1_0\n", "its line .* is no token in base64"),
    ],
)
def test_ranks_that_cannot_be_used(
    name: str, change: Callable[[bytes], bytes], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_tokenizer(name, lambda _: change(_file(_ranks(trained.LLAMA3, size=300))))
    assert "\n" not in str(caught.value)
