"""Every flag of `recordmill vocab` has an effect somewhere, and is refused where it has none.

The table has all flags of the parser: a new flag without a row fails.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.spec import options_of
from recordmill.transforms.vocabulary.vocab_spec import VocabSpec

from ...databases import sqlite_database
from ...transforms.sources.test_mediawiki import dump as mediawiki_dump
from ...transforms.sources.test_mediawiki import page as mediawiki_page

TEXT = "--input={folder}/in.txt"
CSV = "--input={folder}/in.csv"
JSONL = "--input={folder}/in.jsonl"
QUOTED = "--input={folder}/quoted.tsv"
INVALID = "--input={folder}/invalid.txt"
DOCS = ("--input=sqlite:///{folder}/docs.db", "--query=SELECT * FROM docs")
ID = "--partition_column=id"
LINKED = "--input={folder}/linked/*.txt"
DUMP = "--input={folder}/dump.xml"
DENSE = "--input={folder}/dense.txt.gz"
REJECTS = "--max_rejected=0.9"


@dataclass(frozen=True)
class Case:
    """A flag: beside which others it changes the file or the exit status, and where it is refused.

    Attributes:
      flag: with a value that is not the default.
      beside: other flags with which it has an effect.
      refused: other flags with which it has none, and the message.
      more: what must be given with the flag.
    """

    flag: str
    beside: tuple[str, ...] = ()
    refused: tuple[tuple[tuple[str, ...], str], ...] = ()
    more: tuple[str, ...] = ()


CASES = (
    Case("--input={folder}/quoted.tsv"),
    Case("--input_format=text", (JSONL,), (((*DOCS, ID), "--input_format=text has no effect"),)),
    Case(
        "--query=SELECT id, other AS text FROM docs",
        (*DOCS, ID),
        (((TEXT,), "--query is for databases, and --input"),),
    ),
    Case(
        "--partition_column=other",
        (*DOCS, ID),
        (((TEXT,), "--partition_column is for databases, and --input"),),
    ),
    Case(
        "--text_field=other",
        (JSONL,),
        (
            (
                (TEXT,),
                "--text_field=other is for formats with fields, and the input is plain text",
            ),
        ),
    ),
    Case(
        "--header=none",
        (CSV,),
        (
            ((CSV,), "--header=none and --columns belong together"),
            ((TEXT, "--columns=text"), "--header is for CSV and TSV, and the input is plain text"),
        ),
        more=("--columns=book,text",),
    ),
    Case(
        "--columns=text,book",
        (CSV, "--header=none", "--columns=book,text"),
        (((CSV,), "--header=none and --columns belong together"),),
    ),
    Case(
        "--delimiter=;",
        (CSV, "--header=none", "--columns=book,text", REJECTS),
        (((TEXT,), "--delimiter is for CSV and TSV, and the input is plain text"),),
    ),
    Case(
        "--quoting=none",
        (QUOTED,),
        (((TEXT,), "--quoting is for CSV and TSV, and the input is plain text"),),
    ),
    Case(
        "--input_compression=gz",
        ("--input={folder}/packed.txt",),
        (((*DOCS, ID), "--input_compression=gz has no effect"),),
    ),
    Case("--encoding=latin-1", (INVALID, REJECTS)),
    Case(
        "--encoding_errors=replace",
        (INVALID, REJECTS),
        (((INVALID, "--encoding=latin-1"), "--encoding_errors has no effect with an encoding"),),
    ),
    Case(REJECTS, (INVALID,)),
    Case("--allow_outside={folder}", (LINKED, REJECTS)),
    Case("--skip_files={folder}/linked/own.txt", ("--allow_outside={folder}", LINKED)),
    Case("--limit=1", (JSONL,)),
    Case(
        "--wiki_markup=keep",
        (DUMP,),
        (((TEXT,), "--wiki_markup is for a MediaWiki dump, and the input is plain text"),),
    ),
    Case(
        "--wiki_namespaces=0,1",
        (DUMP,),
        (((TEXT,), "--wiki_namespaces is for a MediaWiki dump, and the input is plain text"),),
    ),
    Case("--max_document_bytes=300", (REJECTS,)),
    Case(
        "--max_compression_ratio=2000",
        (DENSE,),
        (((TEXT,), "--max_compression_ratio has no effect where no file is compressed"),),
    ),
    Case("--no-do_lower_case"),
    Case("--output={folder}/out/elsewhere.txt"),
    Case("--overwrite", ("--output={folder}/in.csv.copy",)),
    Case("--kind=bpe", ("--vocab_size=300",)),
    Case("--vocab_size=30"),
    Case("--special_tokens=[PAD],[UNK],[CLS],[SEP],[MASK],[EOD]"),
    Case(
        "--min_count=5",
        (),
        ((("--kind=unigram",), "--min_count has no effect with --kind=unigram; leave it out"),),
    ),
    Case(
        "--max_unique_chars=10",
        (),
        (
            (
                ("--kind=bpe", "--vocab_size=300"),
                "--max_unique_chars has no effect with --kind=bpe; leave it out",
            ),
        ),
    ),
)


def name_of(flag: str) -> str:
    return flag.partition("=")[0].removeprefix("--no-").removeprefix("--")


def test_the_table_has_every_flag() -> None:
    assert {name_of(case.flag) for case in CASES} == {*options_of(VocabSpec)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [f"The people of Water number {i} went ou{'t' * (i % 3 + 1)}" for i in range(9)]
    (tmp_path / "in.txt").write_text("\n".join(lines), encoding="utf-8")
    rows = [{"text": line, "other": f"quite different {i}"} for i, line in enumerate(lines)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    database = sqlite_database(tmp_path / "docs.db")
    database.execute("CREATE TABLE docs (id INT, text TEXT, other TEXT)")
    found = [(i, row["text"], row["other"]) for i, row in enumerate(rows)]
    database.execute("INSERT INTO docs VALUES (?, ?, ?)", found)
    table = "book,text\n" + "".join(f"b{i};x,{line}\n" for i, line in enumerate(lines))
    (tmp_path / "in.csv").write_text(table)
    (tmp_path / "quoted.tsv").write_text("text\n" + '"the water of people"\n' * 5)
    (tmp_path / "invalid.txt").write_bytes(b"the p\xe9n of all\n\n" + b"the ink of all\n\n" * 5)
    pages = [mediawiki_page(n, f"[[of]] {line}") for n, line in enumerate(lines)]
    pages += [mediawiki_page(100 + n, "of the man", namespace=1) for n in range(9)]
    (tmp_path / "dump.xml").write_bytes(mediawiki_dump(pages))
    (tmp_path / "in.csv.copy").write_text("kept\n")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/own.txt").write_text("the own words\n\n" * 9)
    (tmp_path / "outside.txt").write_text("other words\n\n" * 9)
    (tmp_path / "linked/other.txt").symlink_to("../outside.txt")
    (tmp_path / "packed.txt").write_bytes(gzip.compress((tmp_path / "in.txt").read_bytes()))
    dense = b"the same words\n\n" + b" " * (70 << 20) + b"again\n"
    (tmp_path / "dense.txt.gz").write_bytes(gzip.compress(dense))
    return tmp_path


def run(folder: Path, *flags: str) -> tuple[int, dict[str, bytes]]:
    """Returns the exit status, and the vocabularies that are there afterwards, by path."""
    given = dict(flag.format(folder=folder).partition("=")[::2] for flag in flags)
    plain = {"--input": f"{folder}/in.txt", "--output": f"{folder}/out/v.txt"}
    plain |= {"--vocab_size": "200", "--direct_num_workers": "1"}
    both = plain | given
    for old in (folder / "out").glob("*.txt"):
        old.unlink()
    status = main(["vocab", *(f"{n}={v}" if v else n for n, v in both.items())])
    made = {str(path): path.read_bytes() for path in (folder / "out").glob("*.txt")}
    return status, made


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[name_of(case.flag) for case in CASES])
def test_a_flag_has_an_effect(case: Case, folder: Path) -> None:
    plain = run(folder, *case.beside)
    name = case.flag.partition("=")[0]
    beside = [flag for flag in case.beside if flag.partition("=")[0] != name]
    changed = run(folder, *beside, case.flag, *case.more)
    assert 0 in (plain[0], changed[0])
    assert plain != changed


REFUSED = [(case.flag, *refused) for case in CASES for refused in case.refused]


@pytest.mark.parametrize(
    ("flag", "beside", "message"), REFUSED, ids=[f"{name_of(f)}-{b[0]}" for f, b, _ in REFUSED]
)
def test_a_flag_without_effect_is_refused(
    flag: str,
    beside: tuple[str, ...],
    message: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(folder, *beside, flag) == (2, {})
    found = capsys.readouterr().err
    assert message in found
    assert found.count("\n") == 1
