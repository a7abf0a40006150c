"""Small tokenizers of every kind, trained on the spot."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Iterable

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXT = [
    "The quick brown fox jumps over the lazy dog, and the dog's owner doesn't mind at all.",
    "We've seen 12,345 waters; they're    flowing\tdown to the sea's shore in 1984.",
    "In the beginning was the word: naïve café, Straße, “quoted” – the … end!!!",
    "def main(args):\n    return [x ** 2 for x in range(1000) if x % 7 == 0]\r\n",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "привет мир, как дела? שלום עולם مرحبا بالعالم 안녕하세요 세계 🙂🙃 e\u0301",
    "aaaaaaa abababab ---------- ...... ======== the the the water Water WATER",
] * 3

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def byte_pairs(
    pattern: str = "",
    *,
    size: int = 600,
    prefix_space: bool = False,
    lines: Iterable[str] = TEXT,
) -> bytes:
    """A byte-level BPE: of GPT-2's pattern, or another one."""
    model = Tokenizer(models.BPE())
    if pattern:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        model.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    else:
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    model.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=size, special_tokens=[*SPECIAL, "<|endoftext|>"], initial_alphabet=alphabet,
            show_progress=False,
        ),
    )  # fmt: skip
    return model.to_str().encode()


def unigram_json(
    *, size: int = 400, whitespace: bool = False, lines: Iterable[str] = TEXT
) -> bytes:
    """A Unigram of `tokenizers`, normalized as XLM-RoBERTa and T5 are."""
    model = Tokenizer(models.Unigram())
    model.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    model.pre_tokenizer = pre_tokenizers.Metaspace()
    if whitespace:
        split = pre_tokenizers.WhitespaceSplit()
        model.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.Metaspace()])
    model.decoder = decoders.Metaspace()
    model.train_from_iterator(
        lines,
        trainers.UnigramTrainer(
            vocab_size=size, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
        ),
    )
    return model.to_str().encode()


def word_pieces_json(*, lower_case: bool = True) -> bytes:
    """BERT's tokenizer as `transformers` writes it."""
    model = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    model.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    model.train_from_iterator(
        TEXT, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    )
    return model.to_str().encode()


def pieces(
    kind: str = "unigram", *, size: int = 300, lines: Iterable[str] = TEXT, **options: object
) -> bytes:
    """A SentencePiece .model of the library's own trainer."""

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.replace("\n", " ") for line in lines), model_writer=model,
        vocab_size=size, model_type=kind,
        hard_vocab_limit=False, minloglevel=9, num_threads=1, **options,
    )  # fmt: skip
    return model.getvalue()


def tied_pieces(seed: int, **options: object) -> bytes:
    """A Unigram .model with few different scores: rounding decides between sums of them."""
    data, rng = pieces("unigram", **options), random.Random(seed)
    library = sentencepiece.SentencePieceProcessor(model_proto=data)
    for i in range(library.get_piece_size()):
        if library.is_control(i) or library.is_unknown(i) or library.is_byte(i):
            continue
        name = library.id_to_piece(i).encode()
        begin = b"\x0a" + bytes([len(name)]) + name + b"\x15"
        before = begin + struct.pack("<f", library.get_score(i))
        assert data.count(before) == 1
        data = data.replace(before, begin + struct.pack("<f", -0.1 * rng.randint(20, 50)))
    return data


def ignoring_merges() -> bytes:
    """A byte-level BPE in which words that are tokens are not merged, as Llama 3."""
    content = json.loads(byte_pairs(LLAMA3))
    for word in ("Ġzebra", "quagga"):  # no merges lead to these
        content["model"]["vocab"][word] = len(content["model"]["vocab"])
    content["model"]["ignore_merges"] = True
    return json.dumps(content).encode()


def marked_byte_pairs() -> bytes:
    """A BPE of characters with bytes for unknown ones, as Llama 2 and Mistral."""
    model = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    model.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    trained_by = Tokenizer(models.BPE(unk_token="<unk>"))
    trained_by.pre_tokenizer = pre_tokenizers.Metaspace()
    octets = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, show_progress=False)
    trained_by.train_from_iterator([line.replace("の", "") for line in TEXT], trainer)
    learned = json.loads(trained_by.to_str())["model"]
    content = json.loads(model.to_str())
    vocab = learned["vocab"]
    for octet in octets:
        vocab[octet] = len(vocab)
    content["model"] |= {"vocab": vocab, "merges": learned["merges"]}
    return json.dumps(content).encode()
