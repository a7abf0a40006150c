"""Text from all formats of rows beside JSONL of the same rows, by processor time.

    python benchmarks/columns.py [--size=100MB] [--tokenize]

Documents are read as sentences, lines and whole texts, and, with --tokenize, tokenized too.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from corpus import make_corpus, pydoc_text
from databases import postgresql_server, sqlite_database
from timing import best_seconds

from recordmill.pipelines.job_request import parse_bytes
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.input_spec import WHOLE_TEXT
from recordmill.transforms.sources.query_rows import list_query
from recordmill.transforms.sources.work_items import list_sources
from recordmill.transforms.text.tokenization import Vocabulary, WordPieceTokenizer

FORMS = (
    "jsonl", "csv", "tar", "parquet", "arrow", "feather", "avro", "sqlite", "postgresql",
)  # fmt: skip


def write_forms(folder: Path, size: int) -> int:
    """Writes the same rows in each form; returns the bytes of their text."""
    corpus = make_corpus(folder / "text", pydoc_text(), size)
    texts = [
        text for path in sorted(corpus.glob("*.txt")) for text in path.read_text().split("\n\n")
    ]
    with (folder / "a.jsonl").open("w", encoding="utf-8") as out:
        out.writelines(
            json.dumps({"id": i, "text": text}, ensure_ascii=False) + "\n"
            for i, text in enumerate(texts)
        )
    with (folder / "a.csv").open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([("id", "text"), *enumerate(texts)])
    with tarfile.open(folder / "a.tar", "w") as archive:
        for i, text in enumerate(texts):
            member = tarfile.TarInfo(f"{i:08d}.txt")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    table = pa.table({"id": range(len(texts)), "text": texts})
    pq.write_table(table, folder / "a.parquet", compression="zstd")
    with pa.ipc.new_stream(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table, 1000)  # as Hugging Face's datasets do
    schema = {"type": "record", "name": "row", "fields": [
        {"name": "id", "type": "long"}, {"name": "text", "type": "string"}]}  # fmt: skip
    with (folder / "a.avro").open("wb") as out:
        fastavro.writer(out, schema, table.to_pylist(), codec="deflate")
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(folder / "a.feather", table.schema, options=options) as writer:
        writer.write_table(table)
    return sum(len(text.encode()) for text in texts)


def fill_databases(folder: Path, servers: ExitStack) -> dict[str, str]:
    """Copies the rows to SQLite and to a PostgreSQL server; returns their URLs."""
    rows = [(row["id"], row["text"]) for row in map(json.loads, (folder / "a.jsonl").open())]
    served = {
        "sqlite": sqlite_database(folder / "a.db"),
        "postgresql": servers.enter_context(postgresql_server(folder)),
    }
    for database in served.values():
        database.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, text TEXT)")
        database.execute("INSERT INTO docs VALUES (?, ?)", rows)
    return {name: database.url for name, database in served.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="100MB")
    parser.add_argument("--tokenize", action="store_true")
    options = parser.parse_args()
    specs = {
        "sentences": DocumentSpec(),
        "lines": DocumentSpec(sentence_splitter="none"),
        "whole": DocumentSpec(sentence_splitter=WHOLE_TEXT),
    }
    with tempfile.TemporaryDirectory() as name, ExitStack() as servers:
        folder = Path(name)
        size = write_forms(folder, parse_bytes("--size", options.size))
        urls = fill_databases(folder, servers)
        sys.modules.pop("sqlite3", None)  # which no worker has loaded
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))]
        tokenizer = WordPieceTokenizer(
            Vocabulary.from_bytes("\n".join(words).encode(), "made"), lower_case=True
        )
        for kind, spec in specs.items():
            seconds = {}
            for form in FORMS:
                if form in urls:
                    source = list_query(urls[form], "SELECT * FROM docs", "id", "text")
                else:
                    (source,) = list_sources([f"{folder}/a.{form}"])

                def read(source=source, spec=spec) -> None:  # type: ignore[no-untyped-def]
                    for batch in read_documents(source, spec, groups=False):
                        if options.tokenize:
                            tokenizer.tokenize(batch.lines)

                seconds[form] = best_seconds(read)
            for form, took in seconds.items():
                ratio = seconds["jsonl"] / took
                print(f"{kind:10}{form:10}{size / took / 1e6:8.0f} MB/s{ratio:8.2f} x JSONL")


if __name__ == "__main__":
    main()
