"""The kernels of text beside those of libraries, and the memory of the job.

    python benchmarks/text.py [--text=FILE] [--vocab_file=FILE] [--parts=kernels,memory]

Parts: kernels (tokenization and encoding on one core), memory (the job at 100 MB and 5 GB). The
whole job beside others is in the table of `python benchmarks`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from corpus import make_corpus, pydoc_text

from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.progress import resident_bytes
from recordmill.records.codec.encoding import encode_batch
from recordmill.transforms.sources.lines import split_lines
from recordmill.transforms.text.objectives import BertObjective
from recordmill.transforms.text.text_spec import Bert
from recordmill.transforms.text.tokenization import Vocabulary, WordPieceTokenizer

CORES = usable_cores()
SEED = 12345


def timed(work: Callable[[], Any], repeats: int = 3) -> float:
    """Returns the best of some runs, in seconds."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def show(name: str, value: float, unit: str, **more: object) -> None:
    extra = "  ".join(f"{key} {item}" for key, item in more.items())
    print(f"{name:<58} {value:>10,.1f} {unit:<12} {extra}", flush=True)


def load_vocabulary(path: str) -> Vocabulary:
    return Vocabulary.from_bytes(Path(path).read_bytes(), path)


def tokenization_kernels(text: bytes, vocab_file: str) -> None:
    vocabulary = load_vocabulary(vocab_file)
    megabytes = len(text) / 1e6
    tokenizer = WordPieceTokenizer(vocabulary, lower_case=True)
    ours = megabytes / timed(lambda: tokenizer.tokenize(split_lines(text)))

    def from_nothing() -> None:
        tokenizer.clear()
        tokenizer.tokenize(split_lines(text))

    first = megabytes / timed(from_nothing)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import BertWordPieceTokenizer

    theirs = BertWordPieceTokenizer(vocab_file)._tokenizer
    lines = text.decode().split("\n")
    hugging = megabytes / timed(
        lambda: theirs.encode_batch_fast(lines, add_special_tokens=False), repeats=1
    )
    import tensorflow as tf
    import tensorflow_text

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    fast = tensorflow_text.FastBertTokenizer(
        list(vocabulary.tokens), token_out_type=tf.int32, lower_case_nfd_strip_accents=False
    )
    byte_lines = text.lower().split(b"\n")
    google = megabytes / timed(lambda: fast.tokenize(tf.constant(byte_lines)).values.numpy())
    show("tokenize: recordmill", ours, "MB/s/core", against_tokenizers=f"{ours / hugging:.1f}x")
    show("tokenize: recordmill, nothing remembered", first, "MB/s/core")
    show("tokenize: tokenizers, encode_batch_fast", hugging, "MB/s/core")
    show("tokenize: tensorflow_text FastBertTokenizer, other ids", google, "MB/s/core")


def encoding_kernels(vocab_file: str) -> None:
    vocabulary = load_vocabulary(vocab_file)
    schema = BertObjective(vocabulary, SEED, 1, Bert()).schema
    rng = np.random.default_rng(0)
    count = 8192
    columns: dict[str, Any] = {}
    for feature in schema.features:
        shape = (count, *feature.shape)
        if feature.dtype == "float32":
            columns[feature.name] = rng.integers(0, 2, shape).astype(np.float32)
        else:
            most = len(vocabulary) if feature.name.endswith("ids") else 2
            columns[feature.name] = rng.integers(0, most, shape).astype(np.int32)
    encode_batch(schema, columns)
    ours = count / timed(lambda: encode_batch(schema, columns))
    import pyarrow as pa
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    def flat(name: str) -> Any:
        column = columns[name]
        kind = pa.float32() if column.dtype == np.float32 else pa.int64()
        values = pa.array(column.reshape(-1).astype(kind.to_pandas_dtype()))
        offsets = np.arange(count + 1, dtype=np.int64) * column.shape[1]
        return pa.LargeListArray.from_arrays(pa.array(offsets), values)

    batch = pa.RecordBatch.from_arrays([flat(name) for name in columns], list(columns))
    text = "".join(
        f'feature {{ name: "{f.name}" type: {"FLOAT" if f.dtype == "float32" else "INT"} }}\n'
        for f in schema.features
    )
    encoder = RecordBatchToExamplesEncoder(text_format.Parse(text, schema_pb2.Schema()))
    bsl = count / timed(lambda: encoder.encode(batch))

    def with_protobuf() -> None:
        for row in range(1000):
            features = {}
            for name, column in columns.items():
                if column.dtype == np.float32:
                    kind = {"float_list": tf.train.FloatList(value=column[row])}
                else:
                    kind = {"int64_list": tf.train.Int64List(value=column[row])}
                features[name] = tf.train.Feature(**kind)
            tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    protobuf = 1000 / timed(with_protobuf)
    show("encode and frame: recordmill", ours, "records/s", against_tfx_bsl=f"{ours / bsl:.1f}x")
    show("encode, not framed: tfx_bsl on arrow", bsl, "records/s")
    show("encode, not framed: tf.train.Example", protobuf, "records/s")


def total_bytes(corpus: Path) -> int:
    return sum(path.stat().st_size for path in corpus.glob("*.txt"))


def job(corpus: Path, vocab_file: str, scratch: Path, *flags: str) -> tuple[float, float, str]:
    """Returns seconds and peak bytes of all processes together, and what the command printed."""
    output = scratch / "dataset"
    shutil.rmtree(output, ignore_errors=True)
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "recordmill.pipelines.text", f"--input={corpus}/*.txt",
            f"--output={output}", f"--vocab_file={vocab_file}", "--task=bert", "--dupe_factor=1",
            *flags,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    peak = 0
    begins: dict[str, float] = {}
    while process.poll() is None:
        peak = max(peak, (resident_bytes() or 0) - own_bytes())
        for phase, sign in (("read", "_tmp/runs-0"), ("write", "_tmp/shards.json")):
            if phase not in begins and (output / sign).exists():
                begins[phase] = time.perf_counter() - began
        if "commit" not in begins and (output / "train").exists():
            begins["commit"] = time.perf_counter() - began
        time.sleep(0.05)
    seconds = time.perf_counter() - began
    text = process.communicate()[0]
    if process.returncode:
        sys.exit(text)
    order = [("start", 0.0), *begins.items(), ("", seconds)]
    spans = [
        f"{name} {100 * (after - at) / seconds:.0f}%"
        for (name, at), (_, after) in itertools.pairwise(order)
    ]
    shutil.rmtree(output)
    return seconds, peak, ", ".join(spans)


def own_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", help="real text in BERT's form; Python's help topics by default")
    parser.add_argument("--vocab_file", help="made from the text by default")
    parser.add_argument("--scratch", default="build/benchmark", help="15 GB for memory")
    parser.add_argument("--parts", default="kernels")
    options = parser.parse_args()
    scratch = Path(options.scratch).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    text = Path(options.text).read_text(encoding="utf-8") if options.text else pydoc_text()
    parts = options.parts.split(",")
    vocab_file = options.vocab_file
    if not vocab_file:
        vocab_file = str(scratch / "vocab.txt")
        (scratch / "vocab_text.txt").write_text(text, encoding="utf-8")
        if not Path(vocab_file).exists():
            subprocess.run(
                [
                    sys.executable, "-m", "recordmill.pipelines.vocab", "--vocab_size=8000",
                    f"--input={scratch / 'vocab_text.txt'}", f"--output={vocab_file}",
                ],
                check=True,
            )  # fmt: skip
    if "kernels" in parts:
        tokenization_kernels(text.encode()[:6_000_000], vocab_file)
        encoding_kernels(vocab_file)
    if "memory" in parts:
        peaks = []
        for amount in (100_000_000, 5_000_000_000):
            folder = make_corpus(scratch / f"corpus-{amount}", text, amount)
            seconds, peak, spans = job(folder, vocab_file, scratch, f"--direct_num_workers={CORES}")
            peaks.append(peak)
            show(
                f"peak memory at {amount / 1e6:,.0f} MB", peak / 1e6, "MB",
                speed=f"{total_bytes(folder) / 1e6 / seconds:.1f} MB/s", spans=f"({spans})",
            )  # fmt: skip
            shutil.rmtree(folder)
        print(f"memory at 5 GB / at 100 MB: {peaks[1] / peaks[0]:.2f}")


if __name__ == "__main__":
    main()
