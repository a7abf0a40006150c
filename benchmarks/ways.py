"""What our jobs are compared with: other tools, and bare loops. Each is a process of its own.

    python benchmarks/ways.py WAY INPUT OUTPUT WORKERS [TOKENIZER]

`python benchmarks` starts them all. A way imports what it needs when it runs, so those of other
tools run where nothing of ours is installed. Some follow the published steps of a script that no
package has, and are named as its way.
"""

from __future__ import annotations

import glob
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

BLOCK_BYTES = 1 << 22
SIDE = 224  # of images, in pixels
BATCH = 256  # of records
SEED = 12345


def in_processes(work: Callable[..., None], parts: list[Any], *arguments: Any) -> None:
    """Does the parts of a work in a process each, which share nothing."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=(part, *arguments)) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        sys.exit("a process failed")


# Text


def datasets_map(source: str, output: str, workers: int, tokenizer: str) -> None:
    """Hugging Face's datasets and tokenizers: the ids of all lines, and nothing else."""
    import datasets
    from tokenizers import BertWordPieceTokenizer

    datasets.disable_progress_bars()
    encoder = BertWordPieceTokenizer(tokenizer)._tokenizer

    def ids(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        found = encoder.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"input_ids": [encoding.ids for encoding in found]}

    data = datasets.load_dataset(
        "text", data_files=f"{source}/*.txt", split="train", cache_dir=f"{output}/cache"
    )
    data.map(ids, batched=True, num_proc=workers, remove_columns=["text"])


def _fast_bert(paths: list[str], tokenizer: str) -> None:
    import tensorflow as tf
    import tensorflow_text

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with open(tokenizer, encoding="utf-8") as tokens:
        encoder = tensorflow_text.FastBertTokenizer(
            tokens.read().splitlines(), token_out_type=tf.int32, lower_case_nfd_strip_accents=True
        )
    for path in paths:
        with open(path, "rb") as lines:
            while block := list(itertools.islice(lines, 8192)):
                encoder.tokenize(tf.constant(block)).values.numpy()


def tensorflow_text(source: str, output: str, workers: int, tokenizer: str) -> None:
    """The ids of tensorflow_text's FastBertTokenizer, which are dropped."""
    paths = sorted(glob.glob(f"{source}/*.txt"))
    in_processes(_fast_bert, [paths[i::workers] for i in range(workers)], tokenizer)


def _kernels(part: tuple[int, list[str]], output: str, tokenizer: str) -> None:
    from pathlib import Path

    import numpy as np

    from recordmill.records.codec.encoding import encode_batch
    from recordmill.records.hashing import seed_for
    from recordmill.transforms.sources.document_spec import DocumentSpec
    from recordmill.transforms.sources.documents import read_documents
    from recordmill.transforms.sources.work_items import list_sources
    from recordmill.transforms.text.chunks import ChunkCutter
    from recordmill.transforms.text.objectives import BertObjective
    from recordmill.transforms.text.text_spec import Bert
    from recordmill.transforms.text.tokenization import Vocabulary, WordPieceTokenizer

    number, paths = part
    vocabulary = Vocabulary.from_bytes(Path(tokenizer).read_bytes(), tokenizer)
    objective = BertObjective(vocabulary, SEED, 1, Bert())
    encoder = WordPieceTokenizer(vocabulary, lower_case=True)
    cutter = ChunkCutter(objective.cut, seed_for(SEED, "pieces"))
    with open(f"{output}/bare-{number}", "wb") as out:
        for source in list_sources(paths):
            batches = list(read_documents(source, DocumentSpec(), groups=False))
            for batch, after in itertools.zip_longest(batches, batches[1:]):
                goes_on = after is not None and after.continues
                chunks, _ = cutter.cut(batch, encoder.tokenize(batch.lines), goes_on=goes_on)
                everything = np.arange(len(chunks))
                copies = np.zeros(len(chunks), np.int64)
                for examples in objective.examples(chunks, everything, copies):
                    out.write(encode_batch(objective.schema, examples.columns).buffer.data)


def own_kernels(source: str, output: str, workers: int, tokenizer: str) -> None:
    """Our kernels in a loop: tokenize, pair, mask, encode and write, in the order of the input."""
    paths = sorted(glob.glob(f"{source}/*.txt"))
    parts = [(i, paths[i::workers]) for i in range(workers)]
    in_processes(_kernels, parts, output, tokenizer)


# Text for language models

_encoder: Any = None


def _load_encoder(tokenizer: str) -> None:
    global _encoder
    from tokenizers import Tokenizer

    _encoder = Tokenizer.from_file(tokenizer)


def _encode_line(line: str) -> list[int]:
    found: list[int] = _encoder.encode(json.loads(line)["text"]).ids
    return [*found, 0]  # the end of a document


def pool_of_lines(source: str, output: str, workers: int, tokenizer: str) -> None:
    """The way of Megatron-LM's preprocess_data: a pool is given lines, one process writes ids."""
    import numpy as np

    with (
        open(source, encoding="utf-8") as lines,
        open(f"{output}/ids.bin", "wb") as out,
        multiprocessing.Pool(workers, _load_encoder, (tokenizer,)) as pool,
    ):
        for ids in pool.imap(_encode_line, lines, 32):
            out.write(np.array(ids, np.int32).tobytes())


def whole_file(source: str, output: str, workers: int, tokenizer: str) -> None:
    """The way of Megatron-LM's preprocess_data_fast: gigatoken is given the file."""
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    import awkward
    import gigatoken
    import numpy as np

    ids = gigatoken.Tokenizer(tokenizer).encode_files(gigatoken.JsonlFileSource([source], "text"))
    lengths = awkward.to_numpy(awkward.num(ids))
    awkward.to_numpy(awkward.flatten(ids)).astype(np.int32).tofile(f"{output}/ids.bin")
    lengths.astype(np.int32).tofile(f"{output}/lengths.bin")


def _blocks(path: str, part: int, parts: int) -> Iterator[list[bytes]]:
    """Yields the texts of a part of a JSONL, about a megabyte at a time."""
    import orjson

    block: list[bytes] = []
    size = 0
    with open(path, "rb") as lines:
        for line in itertools.islice(lines, part, None, parts):
            block.append(orjson.loads(line)["text"].encode())
            size += len(block[-1])
            if size > 1 << 20:
                yield block
                block, size = [], 0
    if block:
        yield block


def _tokenizer_alone(part: int, parts: int, path: str, tokenizer: str) -> None:
    from pathlib import Path

    from recordmill.transforms.sources.lines import Lines
    from recordmill.transforms.text.tokenizer_files import load_tokenizer

    encoder = load_tokenizer(Path(tokenizer).read_bytes(), tokenizer).start(lower_case=False)
    for block in _blocks(path, part, parts):
        encoder.tokenize(Lines.from_list(block))


def tokenizer_alone(source: str, output: str, workers: int, tokenizer: str) -> None:
    """The ids of the tokenizer that the job has too, which are dropped."""
    in_processes(_tokenizer_alone, list(range(workers)), workers, source, tokenizer)


# Images


def transform(path: str, flip: bool) -> bytes:
    """Decodes an image, resizes it, mirrors it or not, and encodes it, as all do here."""
    from PIL import Image, ImageOps

    with Image.open(path) as stored:
        image = stored.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    if flip:
        image = ImageOps.mirror(image)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95)
    return out.getvalue()


def _pillow(part: tuple[int, list[str]], output: str) -> None:
    number, paths = part
    with open(f"{output}/bare-{number}", "wb") as out:
        for i, path in enumerate(paths):
            out.write(transform(path, bool(i % 2)))


def pillow(source: str, output: str, workers: int, tokenizer: str) -> None:
    """Pillow in a loop, in a process for each core."""
    paths = sorted(glob.glob(f"{source}/*/*"))
    in_processes(_pillow, [(i, paths[i::workers]) for i in range(workers)], output)


def _write_records(task: tuple[int, list[str], str]) -> None:
    import tensorflow as tf

    number, paths, output = task
    with tf.io.TFRecordWriter(f"{output}/pool-{number:05d}.tfrecord") as writer:
        for i, path in enumerate(paths):
            image = tf.train.BytesList(value=[transform(path, bool(i % 2))])
            label = tf.train.Int64List(value=[int("/b/" in path)])
            features = {
                "image": tf.train.Feature(bytes_list=image),
                "label": tf.train.Feature(int64_list=label),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def pool_of_writers(source: str, output: str, workers: int, tokenizer: str) -> None:
    """What people write themselves: a pool of processes, each with TFRecordWriters."""
    paths = sorted(glob.glob(f"{source}/*/*"))
    tasks = [(i, paths[i::16], output) for i in range(16)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.map(_write_records, tasks, chunksize=1)


# Records


def copy_one(source: str, target: str, sync: bool) -> int:
    """Copies a file; returns the checksum of what was read."""
    import google_crc32c

    crc = 0
    with open(source, "rb") as read, open(target, "wb") as out:
        while block := read.read(BLOCK_BYTES):
            crc = google_crc32c.extend(crc, block)
            out.write(block)
        if sync:
            out.flush()
            os.fsync(out.fileno())
    return crc


def copy_twice(source: str, output: str, workers: int, tokenizer: str, sync: bool = False) -> None:
    """Copies all files, and the copies; with `sync` these are on the disk then, as shards are."""
    names = sorted(os.listdir(source))
    with ProcessPoolExecutor(workers) as pool:
        for before, after in ((source, f"{output}/once"), (f"{output}/once", f"{output}/twice")):
            os.makedirs(after)
            befores, afters = ([f"{folder}/{n}" for n in names] for folder in (before, after))
            syncs = [sync and after.endswith("twice")] * len(names)
            list(pool.map(copy_one, befores, afters, syncs))


def plain_beam(source: str, output: str, workers: int, tokenizer: str) -> None:
    """The steps of DeepVariant's shuffle_tfrecords_beam.py on Beam's local runner."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    options = PipelineOptions(
        runner="DirectRunner", direct_num_workers=workers, direct_running_mode="multi_processing"
    )
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | "Read" >> beam.io.ReadFromTFRecord(f"{source}/*", coder=beam.coders.BytesCoder())
            | "Key" >> beam.Map(lambda record: (hashlib.sha1(record).hexdigest(), record))
            | "Group" >> beam.GroupByKey()
            | "DropKey" >> beam.FlatMap(lambda pair: pair[1])
            | "Write" >> beam.io.WriteToTFRecord(f"{output}/part", coder=beam.coders.BytesCoder())
        )


# Reading


def bare_reader(source: str, output: str, workers: int, tokenizer: str) -> None:
    """An epoch of TFRecordDataset, batch and parse_example, in the order of the files."""
    import tensorflow as tf

    from recordmill.reader.dataset import open_dataset
    from recordmill.reader.parsing import example_spec

    spec = example_spec(open_dataset(source).schema)
    records = tf.data.TFRecordDataset(sorted(glob.glob(f"{source}/train/*.tfrecords")))
    batches = records.batch(BATCH, drop_remainder=True)
    for _ in batches.map(lambda x: tf.io.parse_example(x, spec), tf.data.AUTOTUNE).prefetch(
        tf.data.AUTOTUNE
    ):
        pass


def our_reader(source: str, output: str, workers: int, tokenizer: str) -> None:
    """An epoch of ours, shuffled."""
    from recordmill.reader import load

    for _ in load(source, "train", batch_size=BATCH):
        pass


WAYS: dict[str, Callable[[str, str, int, str], None]] = {
    way.__name__: way
    for way in (
        datasets_map, tensorflow_text, own_kernels, pool_of_lines, whole_file, tokenizer_alone,
        pillow, pool_of_writers, copy_twice, plain_beam, bare_reader, our_reader,
    )
}  # fmt: skip
WAYS["copy_synced"] = partial(copy_twice, sync=True)

if __name__ == "__main__":
    name, given, made, number, *rest = sys.argv[1:]
    WAYS[name](given, made, int(number), rest[0] if rest else "")
