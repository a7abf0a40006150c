"""What `--map` costs: reading with and without a function, and the function alone, side by side.

    python benchmarks/map.py [--size=50MB]

Documents are read, and read and tokenized, by processor time. The function of "identity" returns
its document; that of "clean" searches it by a regular expression and replaces.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from columns import write_forms
from timing import best_seconds

from recordmill.pipelines.job_request import parse_bytes
from recordmill.pipelines.map_functions import function_from_object
from recordmill.transforms import Document
from recordmill.transforms.dataset.user_functions import MapSpec
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.input_spec import WHOLE_TEXT
from recordmill.transforms.sources.mapped_documents import DocumentMapper, MapSums
from recordmill.transforms.sources.work_items import list_sources
from recordmill.transforms.text.tokenization import Vocabulary, WordPieceTokenizer

SPACES = re.compile(r"[ \t]{2,}")


def identity(document: Document) -> Document:
    return document


def clean(document: Document) -> Document:
    return replace(document, text=SPACES.sub(" ", document.text))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="50MB")
    options = parser.parse_args()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))]
    tokenizer = WordPieceTokenizer(
        Vocabulary.from_bytes("\n".join(words).encode(), "made"), lower_case=True
    )
    spec = DocumentSpec(sentence_splitter=WHOLE_TEXT)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_forms(folder, parse_bytes("--size", options.size))
        for form in ("jsonl", "parquet"):
            (source,) = list_sources([f"{folder}/a.{form}"])

            def read(function: Callable[[Any], Any] | None, tokenize: bool) -> None:
                batches = read_documents(source, spec, groups=False)  # noqa: B023
                if function:
                    functions = MapSpec((function_from_object(function),))
                    mapper = DocumentMapper(functions, spec, READ_LIMITS, groups=False)
                    batches = mapper.read(source, MapSums())  # noqa: B023
                for batch in batches:
                    if tokenize:
                        tokenizer.tokenize(batch.lines)

            documents: list[Document] = []
            for batch in read_documents(source, spec, groups=False):
                documents += [
                    Document(batch.lines[i].decode(), str(i)) for i in range(len(batch.lines))
                ]
            print(f"{form}: {len(documents)} documents, {size / 1e6:.0f} MB")
            for tokenize in (False, True):
                plain = best_seconds(lambda: read(None, tokenize))  # noqa: B023
                for function in (identity, clean):
                    alone = best_seconds(lambda: [function(each) for each in documents])  # noqa: B023
                    mapped = best_seconds(lambda: read(function, tokenize))  # noqa: B023
                    beyond = (mapped - plain - alone) / len(documents) * 1e6
                    print(
                        f"  {'read, tokenize' if tokenize else 'read':15}{function.__name__:10}"
                        f"none {plain:6.2f} s   with it {mapped:6.2f} s   alone {alone:6.2f} s   "
                        f"beyond it {beyond:6.2f} us a document"
                    )


if __name__ == "__main__":
    main()
