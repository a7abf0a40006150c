"""Our tokenizers beside the libraries, in one run on one core: ratios are what counts.

    python benchmarks/tokenizers_text.py --gpt2=encoder.json [--bert=vocab.txt] [--text=FILE]
        [--size=20MB]

For each kind it prints MB of text a second of processor time, with a warm memory of words and with
an empty one, and on how many lines the ids differ from ours. `fastokens` and `tokie` are measured
where they are installed; `pip install fastokens tokie` gets them.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import sentencepiece
from corpus import pydoc_text
from timing import best_seconds
from tokenizers import (
    BertWordPieceTokenizer,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from recordmill.pipelines.job_request import parse_bytes
from recordmill.transforms.sources.lines import split_lines
from recordmill.transforms.text.tokenizer_files import load_tokenizer, read_tokenizer

Encode = Callable[[list[str]], list[list[int]]]
SLOW_BYTES = 2_000_000  # of text for libraries of a few MB/s


def show(kind: str, name: str, size: int, seconds: float, note: str = "") -> None:
    print(f"{kind:<22} {name:<24} {size / 1e6 / seconds:>8.1f} MB/s  {note}", flush=True)


def rows(ids: Any, splits: Any) -> list[list[int]]:
    splits = np.asarray(splits).tolist()
    return [ids[a:b].tolist() for a, b in itertools.pairwise(splits)]


def flat(name: str, data: bytes, texts: list[str]) -> tuple[Callable[[], Any], Encode] | None:
    """Returns what to time, and ids line by line, of a library with flat results."""
    path = Path(tempfile.gettempdir()) / f"{os.getpid()}-{name}.json"
    path.write_bytes(data)
    try:
        if name == "fastokens":
            import fastokens

            model = fastokens.Tokenizer.from_file(str(path))

            def encode(lines: list[str]) -> list[list[int]]:
                ids, offsets = model.encode_batch_flat(lines)
                return rows(np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64))
        else:
            import tokie

            model = tokie.Tokenizer.from_json(str(path))

            def encode(lines: list[str]) -> list[list[int]]:
                ids, lengths = model.encode_batch_flat(lines, add_special_tokens=False)
                return rows(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

        encode(texts[:100])
    except Exception as error:
        print(f"{name}: {str(error)[:100]}")
        return None
    finally:
        path.unlink()
    return lambda: model.encode_batch_flat(texts), encode


def compare(kind: str, data: bytes, text: bytes, reference: str, encode: Encode) -> None:
    lines = split_lines(text)
    texts = [lines[i].decode("utf-8") for i in range(len(lines))]
    ours: Any = load_tokenizer(data, kind).start(lower_case=True)
    load_tokenizer(data, kind).start(lower_case=True).tokenize(lines)  # compiles
    cold = best_seconds(lambda: ours.tokenize(lines), 1)
    tokens = ours.tokenize(lines)
    expected = rows(tokens.ids, tokens.row_splits)
    show(kind, "recordmill", len(text), best_seconds(lambda: ours.tokenize(lines)))
    show(kind, "recordmill, empty memory", len(text), cold)
    count = int(np.searchsorted(lines.ends, SLOW_BYTES))
    few = texts[:count]
    seconds = best_seconds(lambda: encode(few), 1)
    found = encode(few)
    different = sum(a != b for a, b in zip(found, expected, strict=False))
    show(kind, reference, int(lines.ends[count - 1]), seconds, f"{different} of {count} differ")
    for name in ("fastokens", "tokie") if data[:1] == b"{" else ():
        if (both := flat(name, data, texts)) is None:
            continue
        work, ids_of = both
        different = sum(a != b for a, b in zip(ids_of(texts), expected, strict=True))
        show(kind, name, len(text), best_seconds(work), f"{different} of {len(texts)} differ")


def by_tokenizers(data: bytes) -> Encode:
    model = Tokenizer.from_str(data.decode())
    model.encode_special_tokens = True
    return lambda lines: [e.ids for e in model.encode_batch_fast(lines, add_special_tokens=False)]


def unigram_json(lines: list[str]) -> bytes:
    model = Tokenizer(models.Unigram())
    model.normalizer = normalizers.NFKC()
    model.pre_tokenizer = pre_tokenizers.Metaspace()
    model.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=16_000, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    model.train_from_iterator(lines, trainer)
    return model.to_str().encode()


def sentence_pieces(lines: list[str], kind: str) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=16_000, model_type=kind,
        hard_vocab_limit=False, minloglevel=9,
    )  # fmt: skip
    return model.getvalue()


def compare_word_pieces(path: str, text: bytes) -> None:
    """BERT's vocab.txt, and the tokenizer.json of the same vocabulary, by both of our ways."""
    library = BertWordPieceTokenizer(path, lowercase=True)._tokenizer
    file = library.to_str().encode()
    encode = by_tokenizers(file)
    compare("WordPiece, vocab.txt", Path(path).read_bytes(), text, "tokenizers", encode)
    compare("WordPiece, t….json", file, text, "tokenizers", encode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpt2", required=True, help="encoder.json, with vocab.bpe beside it")
    parser.add_argument("--bert", default="", help="vocab.txt, in lower case")
    parser.add_argument("--text", default="", help="by default, the standard library's help")
    parser.add_argument("--size", default="20MB")
    options = parser.parse_args()
    text = Path(options.text).read_bytes() if options.text else pydoc_text().encode()
    text = text[: parse_bytes("--size", options.size)]
    learned = text[:3_000_000].decode("utf-8", "ignore").split("\n")
    data, _ = read_tokenizer(options.gpt2, lambda path: Path(path).read_bytes())
    compare("BPE, GPT-2", data, text, "tokenizers", by_tokenizers(data))
    if options.bert:
        compare_word_pieces(options.bert, text)
    for kind in ("unigram", "bpe"):
        data = sentence_pieces(learned, kind)
        library = sentencepiece.SentencePieceProcessor(model_proto=data)
        compare(f"{kind}, .model", data, text, "sentencepiece", library.encode)
    data = unigram_json(learned)
    compare("unigram, tokenizer.json", data, text, "tokenizers", by_tokenizers(data))


if __name__ == "__main__":
    main()
