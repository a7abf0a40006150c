"""Every flag of `recordmill text` has an effect somewhere, and is refused where it cannot have one.

The table has all options: a new one without a row fails.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.faces import aliases_of
from recordmill.records.spec import options_of
from recordmill.transforms.text.text_spec import TextSpec

from ..conftest import SharedFolder, bert_text, make_documents, make_vocabulary
from ..databases import sqlite_database
from ..transforms.sources.test_mediawiki import dump as mediawiki_dump
from ..transforms.sources.test_mediawiki import page as mediawiki_page
from ..transforms.subwords import trained

MLM = "--task=mlm"
TOKENS = "--task=mlm_tokens"
CLASSIFY = "--task=classify"
BERT = "--task=bert"
GPT = "--task=gpt"
T5 = "--task=t5"
FIM = "--vocab_file={folder}/fim.txt"
ROWS_OF = "--input={folder}/rows.jsonl"
SPLITS = "--splits=train:0.7,validation:0.3"
WORDS = "--do_whole_word_mask"
TEXT = "--input={folder}/corpus.txt"
JSONL = "--input={folder}/corpus.jsonl"
CSV = "--input={folder}/corpus.csv"
PIPES = "--input={folder}/pipes.csv"
DOCS = ("--input=sqlite:///{folder}/docs.db", "--query=SELECT * FROM docs")
ID = "--partition_column=id"
BPE = "--vocab_file={folder}/bpe.json"
LINKED = "--input={folder}/linked/*.txt"
INVALID = "--input={folder}/invalid.txt"
DUMP = "--input={folder}/dump.xml"


@dataclass(frozen=True)
class Row:
    """A flag: what it changes, and where it is refused.

    Attributes:
      flag: with a value that is not the default.
      beside: other flags with which it has an effect.
      refused: other flags with which it has none, and the message; there need not be any.
      more: what must be given with the flag.
      outcome: what changes: the "bytes" of the dataset, its "place", the "name" of its shards, the
        exit "status", the "list" that `test_text_cleaning.py` reads, or, of "bert", what
        `test_bert_line.py` tests.
    """

    flag: str
    beside: tuple[str, ...] = (MLM,)
    refused: tuple[tuple[tuple[str, ...], str], ...] = ()
    outcome: str = "bytes"
    more: tuple[str, ...] = ()


def for_tasks(name: str, *tasks: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    message = f"--{name} has no effect with --task="
    return tuple(((f"--task={task}",), f"{message}{task}") for task in tasks)


UNMASKED = ("mlm_tokens", "classify")
NOT_BERT = ("mlm", "mlm_tokens", "classify")
ROWS = (
    Row("--input={folder}/other.txt"),
    Row(
        "--input_file={folder}/other.txt",
        refused=(((TEXT,), "--input and --input_file are two names of one flag; give one"),),
        outcome="bert",
    ),
    Row(
        "--output_file={folder}/elsewhere",
        refused=((("--output={folder}/ds",), "--output_file is BERT's name of --output"),),
        outcome="bert",
    ),
    Row("--input_format=text", (MLM, JSONL), (((*DOCS, ID), "--input_format=text has no effect"),)),
    Row(
        "--input_compression=gz",
        (MLM, "--input={folder}/packed.txt"),
        (((*DOCS, ID), "--input_compression=gz has no effect on a database"),),
        outcome="status",
    ),
    Row(
        "--query=SELECT id, other AS text FROM docs",
        (MLM, *DOCS, ID),
        (((MLM, TEXT), "--query is for databases, and --input"),),
    ),
    Row(
        "--partition_column=turned",
        (MLM, *DOCS, ID),
        (
            ((MLM, TEXT), "--partition_column is for databases, and --input"),
            ((MLM, DOCS[0]), "--query is missing"),
        ),
    ),
    Row(
        "--documents=line",
        ("--task=bert",),
        (((JSONL,), "--documents=line is for plain text, and the input is JSONL"),),
    ),
    Row(
        "--text_field=other",
        (MLM, JSONL),
        (((TEXT,), "--text_field=other is for formats with fields, and"),),
    ),
    Row(
        "--header=none",
        (MLM, CSV),
        (
            ((CSV,), "--header=none and --columns belong together"),
            ((TEXT, "--columns=text"), "--header is for CSV and TSV, and the input is plain text"),
        ),
        more=("--columns=book,text",),
    ),
    Row(
        "--columns=text,book",
        (MLM, CSV, "--header=none", "--columns=book,text"),
        (((CSV,), "--header=none and --columns belong together"),),
    ),
    Row(
        "--delimiter=;",
        (MLM, PIPES, "--header=none", "--columns=book,text", "--delimiter=|"),
        (((TEXT,), "--delimiter is for CSV and TSV, and the input is plain text"),),
    ),
    Row(
        "--quoting=none",
        (MLM, CSV, "--max_rejected=1"),
        (((TEXT,), "--quoting is for CSV and TSV, and the input is plain text"),),
    ),
    Row(
        "--wiki_markup=keep",
        (MLM, DUMP),
        (((TEXT,), "--wiki_markup is for a MediaWiki dump, and the input is plain text"),),
    ),
    Row(
        "--wiki_namespaces=0,1",
        (MLM, DUMP),
        (((TEXT,), "--wiki_namespaces is for a MediaWiki dump, and the input is plain text"),),
    ),
    Row("--encoding=latin-1", (MLM, INVALID, "--max_rejected=1")),
    Row(
        "--encoding_errors=replace",
        (MLM, INVALID, "--max_rejected=1"),
        ((("--encoding=latin-1",), "--encoding_errors has no effect with an encoding in which"),),
    ),
    Row("--max_rejected=1", (MLM, INVALID), outcome="status"),
    Row("--allow_outside={folder}", (MLM, LINKED, "--max_rejected=1")),
    Row("--skip_files={folder}/other.txt", (MLM, f"{TEXT},{{folder}}/other.txt")),
    Row(
        "--limit=20",
        (MLM,),
        (((*DOCS, ID), "--limit=20 has no effect on a database; give --query with LIMIT 20"),),
    ),
    Row("--max_document_bytes=300", (MLM, "--max_rejected=1")),
    Row(
        "--max_compression_ratio=2000",
        (MLM, "--input={folder}/dense.txt.gz"),
        (((TEXT,), "--max_compression_ratio has no effect where no file is compressed"),),
        outcome="status",
    ),
    Row(
        "--no-do_lower_case",
        (MLM, "--vocab_file={folder}/mixed.txt"),
        (
            ((MLM,), "--no-do_lower_case needs a vocabulary with capital letters"),
            ((MLM, "--vocab_file={folder}/bpe.json"), "--no-do_lower_case has no effect with"),
        ),
    ),
    Row(
        "--split_by=book",
        (MLM, SPLITS, JSONL),
        (
            ((SPLITS, TEXT), "--split_by needs fields"),
            ((JSONL,), "--split_by has no effect where there is one split"),
        ),
    ),
    Row(
        "--split_from=set",
        (MLM, JSONL, "--splits=train:0.5,test:0.5"),
        (
            ((TEXT, "--splits=train,test"), "--split_from needs fields"),
            ((JSONL,), "--split_from=set needs the names of the splits"),
            (("--input=a={folder}/corpus.txt",), "--split_from has no effect where --input names"),
        ),
        more=("--splits=train,test",),
    ),
    Row("--output={folder}/elsewhere", outcome="place"),
    Row("--overwrite", outcome="status"),
    Row("--temp_dir={folder}/scratch", outcome="place"),
    Row("--splits=train:0.5,test:0.5"),
    Row("--num_shards=3", refused=((("--num_readers=2",), "give one of --num_shards"),)),
    Row("--shard_size=20kB", refused=((("--num_shards=2",), "give one of --num_shards"),)),
    Row(
        "--num_readers=2",
        (MLM, "--dupe_factor=200"),
        ((("--shard_size=20kB",), "not --shard_size and --num_readers"),),
    ),
    Row("--compression=GZIP"),
    Row("--naming=flat", outcome="name"),
    Row(
        "--preset=model-garden-v2",
        (BERT,),
        (((MLM,), "--preset=model-garden-v2 is for Model Garden's"),),
    ),
    Row("--extension=tfrecord", outcome="name"),
    Row("--warnings=error", ("--task=bert", "--documents=line"), outcome="status"),
    Row("--random_seed=1"),
    Row("--task=bert"),
    Row("--vocab_file={folder}/mixed.txt"),
    Row(
        "--allow_special_tokens",
        (MLM, "--vocab_file={folder}/bpe.json", "--input={folder}/special.txt"),
        (((MLM,), "--allow_special_tokens has no effect with a vocab.txt"),),
    ),
    Row("--max_seq_length=32"),
    Row(
        "--dupe_factor=2",
        refused=(
            ((TOKENS,), "--dupe_factor must be 1 for --task=mlm_tokens"),
            ((CLASSIFY,), "--dupe_factor must be 1 for --task=classify"),
        ),
    ),
    Row(
        "--dupe_splits=all",
        (MLM, SPLITS, "--dupe_factor=3"),
        (
            *for_tasks("dupe_splits", *UNMASKED),
            ((SPLITS, "--dupe_factor=1"), "--dupe_splits has no effect where there is one copy"),
            ((MLM, "--dupe_factor=3"), "--dupe_splits has no effect where there is one split"),
        ),
    ),
    Row("--short_seq_prob=0.9", refused=for_tasks("short_seq_prob", "classify")),
    Row(
        "--min_short_seq_length=40",
        refused=(
            *for_tasks("min_short_seq_length", "bert", "classify"),
            ((MLM, "--short_seq_prob=0"), "--min_short_seq_length has no effect with --short_seq"),
        ),
    ),
    Row("--overlap_size=3", refused=for_tasks("overlap_size", "bert", "classify")),
    Row(
        "--allow_cross_document_examples",
        refused=for_tasks("allow_cross_document_examples", "bert", "classify"),
    ),
    Row("--use_v2_feature_names", refused=for_tasks("use_v2_feature_names", "mlm_tokens")),
    Row(
        "--text_pair_field=other",
        (CLASSIFY, ROWS_OF),
        (
            *for_tasks("text_pair_field", "bert", "mlm", "mlm_tokens"),
            ((CLASSIFY, ROWS_OF, "--text_field=other"), "--text_pair_field must be another field"),
        ),
    ),
    Row(
        "--label_field=set",
        (CLASSIFY, ROWS_OF),
        for_tasks("label_field", "bert", "mlm", "mlm_tokens"),
    ),
    Row(
        "--labels={folder}/labels.txt",
        (CLASSIFY, ROWS_OF),
        for_tasks("labels", "bert", "mlm", "mlm_tokens"),
    ),
    Row(
        "--keep_fields=book,number:int",
        (MLM, JSONL),
        (
            (("--task=bert", JSONL), "--keep_fields has no meaning for --task=bert"),
            (
                (MLM, JSONL, "--allow_cross_document_examples"),
                "--keep_fields has no meaning with --allow_cross_document_examples",
            ),
            ((TOKENS, JSONL), "--keep_fields needs --record_type=example for --task=mlm_tokens"),
            ((MLM, TEXT), "--keep_fields needs fields, as JSONL, CSV and Parquet have"),
            ((MLM, CSV), "--keep_fields must be a column of"),
        ),
    ),
    Row("--map={folder}/functions.py:shorter", (MLM,)),
    Row(
        "--map_errors=fail",
        (MLM, "--map={folder}/functions.py:shorter"),
        (((MLM,), "--map_errors=fail has no effect without --map"),),
        outcome="status",
    ),
    Row("--normalize=nfkc", (MLM, "--input={folder}/wide.txt")),
    Row("--min_tokens=20"),
    Row("--max_tokens=100"),
    Row("--deduplicate=exact", (MLM, "--input={folder}/wide.txt")),
    Row(
        "--near_threshold=0.3",
        (MLM, "--input={folder}/similar.txt", "--deduplicate=near"),
        (((MLM,), "--near_threshold has no effect without --deduplicate=near"),),
    ),
    Row(
        "--list_dropped",
        (MLM, "--min_tokens=20"),
        (((MLM,), "--list_dropped has no effect where no document is dropped"),),
        outcome="list",
    ),
    Row(
        "--format=maxtext",
        (GPT,),
        (
            *for_tasks("format", *NOT_BERT, "bert", "t5_tokens"),
            ((T5,), "--format=maxtext is for --task=gpt"),
        ),
    ),
    Row("--packing=concat", (GPT,), for_tasks("packing", "bert", *UNMASKED)),
    Row(
        "--pad_id=9",
        (GPT,),
        (
            *for_tasks("pad_id", "mlm", "t5_tokens"),
            ((GPT, "--format=seqio"), "--pad_id has no effect with --format=seqio"),
            ((T5,), "--pad_id has no effect with --format=seqio"),
        ),
    ),
    Row("--eos_id=9", (GPT,), for_tasks("eos_id", "bert", "mlm")),
    Row("--strip", (GPT, "--documents=file", BPE), for_tasks("strip", "bert", "mlm")),
    Row(
        "--prompt_field=book",
        (GPT, JSONL),
        (
            *for_tasks("prompt_field", "mlm", "t5"),
            ((GPT, TEXT), "--prompt_field needs fields"),
            ((GPT, CSV, "--text_field=book"), "--prompt_field must be another field"),
        ),
    ),
    Row(
        "--loss_mask",
        (GPT, JSONL, "--prompt_field=book"),
        (
            *for_tasks("loss_mask", "mlm"),
            ((GPT,), "--loss_mask has no effect without --prompt_field"),
            ((GPT, JSONL, "--prompt_field=book", "--format=seqio"), "--loss_mask needs --format="),
        ),
    ),
    Row(
        "--fim_rate=0.5",
        (GPT, FIM),
        (
            *for_tasks("fim_rate", "t5"),
            ((GPT,), "--fim_rate needs a tokenizer with <fim_prefix>, <fim_suffix>"),
        ),
    ),
    Row(
        "--fim_spm_rate=0.9",
        (GPT, FIM, "--fim_rate=0.5"),
        (((GPT,), "--fim_spm_rate has no effect without --fim_rate"),),
    ),
    Row("--noise_density=0.3", (T5,), for_tasks("noise_density", "gpt", "ul2")),
    Row("--mean_noise_span_length=5", (T5,), for_tasks("mean_noise_span_length", "gpt", "ul2")),
    Row("--denoisers=0.15:3:1,0.5:8:1", ("--task=ul2",), for_tasks("denoisers", "gpt", "t5")),
    Row("--first_sentinel_id=500", (T5,), for_tasks("first_sentinel_id", "gpt", "t5_tokens")),
    Row("--mode_tokens=5,6,7", ("--task=ul2",), for_tasks("mode_tokens", "gpt", "t5")),
    Row(
        "--decoder_start_id=9",
        (T5, "--format=cerebras"),
        (
            *for_tasks("decoder_start_id", "gpt", "t5_tokens"),
            ((T5,), "--decoder_start_id has no effect without --format=cerebras"),
        ),
    ),
    Row("--sentence_order", (BERT,), for_tasks("sentence_order", "mlm", "gpt")),
    Row(
        "--no_nsp",
        (BERT,),
        (
            *for_tasks("no_nsp", "mlm"),
            ((BERT, "--sentence_order"), "--no_nsp has no effect with --sentence_order"),
        ),
    ),
    Row(
        "--no-check_case",
        (MLM, "--no-do_lower_case"),
        (((MLM,), "--no-check_case has no effect where the case of --vocab_file"),),
        outcome="status",
    ),
    Row(
        "--use_position_id",
        ("--task=bert",),
        (
            *for_tasks("use_position_id", *UNMASKED, "t5"),
            ((MLM,), "--use_position_id has no effect without --packing"),
            ((GPT, "--format=maxtext"), "--use_position_id has no effect with --format=maxtext"),
        ),
    ),
    Row(
        "--use_segment_ids",
        refused=(
            *for_tasks("use_segment_ids", "bert", *UNMASKED),
            ((GPT, "--format=seqio"), "--use_segment_ids has no effect with --format=seqio"),
        ),
    ),
    Row(
        "--sentence_splitter=punctuation",
        ("--task=bert",),
        for_tasks("sentence_splitter", *NOT_BERT),
    ),
    Row("--record_type=example", (TOKENS,), for_tasks("record_type", "bert", "mlm", "classify")),
    Row("--max_predictions_per_seq=4", refused=for_tasks("max_predictions_per_seq", *UNMASKED)),
    Row("--masked_lm_prob=0.3", refused=for_tasks("masked_lm_prob", *UNMASKED)),
    Row(WORDS, refused=for_tasks("do_whole_word_mask", *UNMASKED)),
    Row("--max_ngram_size=3", refused=for_tasks("max_ngram_size", *UNMASKED)),
    Row(
        "--replacement=per_word",
        (MLM, WORDS),
        (
            *for_tasks("replacement", *UNMASKED),
            ((MLM,), "--replacement has no effect without --do_whole_word_mask"),
        ),
    ),
)  # fmt: skip


def name_of(flag: str) -> str:
    return flag.partition("=")[0].removeprefix("--no-").removeprefix("--")


def test_the_table_has_every_flag() -> None:
    assert {name_of(row.flag) for row in ROWS} == aliases_of(options_of(TextSpec)).keys() - {
        "tokenizer"
    }


@pytest.fixture(scope="session")
def folder(shared_folder: SharedFolder) -> Path:
    """The same documents in several formats, and vocabularies."""

    def fill(folder: Path) -> None:
        documents = make_documents(60, seed=3)
        lines = [" ".join(sentences) for sentences in documents]
        (folder / "corpus.txt").write_text(bert_text(documents), encoding="utf-8")
        (folder / "other.txt").write_text(bert_text(documents[:30]), encoding="utf-8")
        (folder / "functions.py").write_text(
            "def shorter(document):\n    return type(document)(document.text[:100])\n"
            "def raises(document):\n    raise ValueError('no')\n"
        )
        wide = "\n\n".join("the \uff50\uff45\uff4e of the man" for _ in range(40))
        pages = [mediawiki_page(n, f"[[of]] {line}") for n, line in enumerate(lines)]
        pages.append(mediawiki_page(100, "of the man", namespace=1))
        (folder / "dump.xml").write_bytes(mediawiki_dump(pages))
        (folder / "wide.txt").write_text(wide, encoding="utf-8")
        halves = [line[: len(line) // 2] for line in lines[:20]]
        similar = "\n\n".join([*lines[:20], *halves])
        (folder / "similar.txt").write_text(similar, encoding="utf-8")
        (folder / "linked").mkdir()
        (folder / "linked/own.txt").write_text(bert_text(documents[:9]), encoding="utf-8")
        (folder / "linked/other.txt").symlink_to("../other.txt")
        packed = gzip.compress((folder / "corpus.txt").read_bytes())
        (folder / "packed.txt").write_bytes(packed)
        (folder / "plain.txt.gz").write_bytes((folder / "corpus.txt").read_bytes())
        dense = b"the same words\n\n" + b" " * (70 << 20) + b"again\n"
        (folder / "dense.txt.gz").write_bytes(gzip.compress(dense))
        (folder / "invalid.txt").write_bytes(b"\n\n".join([b"the p\xe9n of\n", *[b"one"] * 20]))
        with (folder / "corpus.jsonl").open("w", encoding="utf-8") as handle:
            for i, line in enumerate(lines):
                row = {"text": line, "other": lines[-i], "book": f"b{i % 9}", "number": i}
                row["set"] = "test" if i % 5 == 0 else "train"
                handle.write(json.dumps(row) + "\n")
        with (folder / "rows.jsonl").open("w", encoding="utf-8") as handle:
            for i, line in enumerate(lines):
                row = {"text": line, "other": lines[-i], "label": "ab"[i % 2], "set": "cde"[i % 3]}
                handle.write(json.dumps(row) + "\n")
        (folder / "labels.txt").write_text("b\na\n")
        database = sqlite_database(folder / "docs.db")
        database.execute("CREATE TABLE docs (id INT, turned INT, text TEXT, other TEXT)")
        found = [(i, -i, line, lines[-i]) for i, line in enumerate(lines)]
        database.execute("INSERT INTO docs VALUES (?, ?, ?, ?)", found)
        rows = "".join(f'{i % 9},"{line}"\n' for i, line in enumerate(lines))
        (folder / "corpus.csv").write_text(f"book,text\n{rows}", encoding="utf-8")
        rows = "".join(f"{i}|x;{line}\n" for i, line in enumerate(lines))
        (folder / "pipes.csv").write_text(rows, encoding="utf-8")
        tokens = make_vocabulary()
        (folder / "plain.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
        (folder / "bpe.json").write_bytes(trained.byte_pairs())
        (folder / "special.txt").write_text("the <mask> of </s> it\n" * 40, encoding="utf-8")
        middles = ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"]
        (folder / "fim.txt").write_text("\n".join([*tokens, *middles]) + "\n", encoding="utf-8")
        (folder / "mixed.txt").write_text("\n".join([*tokens, "The"]) + "\n", encoding="utf-8")

    return shared_folder("text-flags", fill)


@dataclass
class Runner:
    """Runs the job in a folder; equal flags once."""

    folder: Path
    scratch: Path
    outcomes: dict[tuple[str, ...], dict[str, object]] = field(default_factory=dict)

    def arguments(self, flags: tuple[str, ...], output: Path) -> list[str]:
        given = dict(flag.format(folder=self.folder).partition("=")[::2] for flag in flags)
        plain = {
            "--input": f"{self.folder}/corpus.txt", "--vocab_file": f"{self.folder}/plain.txt",
            "--output": str(output), "--max_seq_length": "64", "--direct_num_workers": "1",
        }  # fmt: skip
        task = given.get("--task", "bert")
        masked = task in ("bert", "mlm")
        if masked:
            plain |= {"--max_predictions_per_seq": "10"}
        if task in ("bert", "mlm", "t5", "ul2") and "--dupe_factor" not in given:
            plain |= {"--dupe_factor": "1"}
        both = plain | given
        return [f"{name}={value}" if value else name for name, value in both.items()]

    def run(self, *flags: str) -> dict[str, object]:
        if flags not in self.outcomes:
            output = self.scratch / str(len(self.outcomes))
            status = main(["text", *self.arguments(flags, output)])
            shards = {
                str(path.relative_to(output)): path.read_bytes()
                for path in sorted(output.glob("*/*.tfrecords"))
            }
            self.outcomes[flags] = {"bytes": shards, "status": status}
        return self.outcomes[flags]


@pytest.fixture(scope="module")
def runner(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(folder, tmp_path_factory.mktemp("flags"))


BYTES = [row for row in ROWS if row.outcome == "bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("row", BYTES, ids=[name_of(row.flag) for row in BYTES])
def test_a_flag_changes_the_dataset(row: Row, runner: Runner) -> None:
    plain = runner.run(*row.beside)
    name = row.flag.partition("=")[0]
    beside = [flag for flag in row.beside if flag.partition("=")[0] != name]
    changed = runner.run(*beside, row.flag, *row.more)
    assert plain["status"] == changed["status"] == 0
    assert plain["bytes"] != changed["bytes"]


def test_max_rejected_decides_whether_a_run_fails(runner: Runner) -> None:
    assert runner.run(MLM, INVALID)["status"] == 1
    assert runner.run(MLM, INVALID, "--max_rejected=1")["status"] == 0


def test_the_case_of_the_vocabulary_need_not_be_checked(runner: Runner) -> None:
    assert runner.run(MLM, "--no-do_lower_case")["status"] == 2
    changed = runner.run(MLM, "--no-do_lower_case", "--no-check_case")
    assert changed["status"] == 0
    assert changed["bytes"] != runner.run(MLM)["bytes"]


def test_a_file_that_unpacks_to_far_too_much_is_rejected(runner: Runner) -> None:
    dense = "--input={folder}/dense.txt.gz"
    assert runner.run(MLM, dense)["status"] == 1
    assert runner.run(MLM, dense, "--max_compression_ratio=2000")["status"] == 0


def test_names_need_not_say_how_files_are_compressed(
    runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = runner.run(MLM)
    packed = (MLM, "--input={folder}/packed.txt")
    assert runner.run(*packed)["status"] == 2
    assert "name does not say so; give --input_compression=gz" in capsys.readouterr().err
    named = ("--input={folder}/plain.txt.gz", "--input_compression=none")
    for found in (runner.run(*packed, "--input_compression=gz"), runner.run(MLM, *named)):
        assert found["status"] == 0
        # Keys are made of the names of files, so records have another order.
        assert sum(map(len, found["bytes"].values())) > 0.9 * sum(map(len, plain["bytes"].values()))


def test_a_file_that_is_not_compressed_as_it_should_be_is_told_the_flag(
    runner: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, flags in (("p.txt", ("--input_compression=gz",)), ("p.txt.gz", ())):
        (tmp_path / name).write_text("plain text, not packed\n" * 9)
        assert runner.run(MLM, f"--input={tmp_path}/{name}", *flags)["status"] == 1
        assert "if it is not compressed, give --input_compression=none" in capsys.readouterr().err


def test_errors_of_functions_are_rejects_or_end_the_run(runner: Runner) -> None:
    flags = (MLM, "--map={folder}/functions.py:shorter")
    assert runner.run(*flags)["status"] == runner.run(*flags, "--map_errors=fail")["status"] == 0
    raises = (MLM, "--map={folder}/functions.py:raises", "--max_rejected=1")
    assert runner.run(*raises, "--map_errors=fail")["status"] == 1


def test_warnings_decide_whether_a_run_fails(runner: Runner) -> None:
    lines = ("--task=bert", "--documents=line")
    assert runner.run(*lines)["status"] == 0
    assert runner.run(*lines, "--warnings=error")["status"] == 1


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--naming=flat", "train-00000-of-00001.tfrecord"),
        ("--extension=tfrecord", "train/train-00000-of-00001.tfrecord"),
    ],
)
def test_shards_have_other_names(runner: Runner, tmp_path: Path, flag: str, name: str) -> None:
    assert runner.run(MLM, flag, f"--output={tmp_path}/ds")["status"] == 0
    assert (tmp_path / "ds" / name).exists()


def test_output_and_temp_dir_are_where_files_are(runner: Runner, tmp_path: Path) -> None:
    flags = (MLM, f"--output={tmp_path}/ds", f"--temp_dir={tmp_path}/none/such")
    assert runner.run(*flags)["status"] == 0
    assert (tmp_path / "ds/_SUCCESS").exists()
    assert (tmp_path / "none").exists()


def test_overwrite_replaces_a_dataset(runner: Runner, tmp_path: Path) -> None:
    output = f"--output={tmp_path}/ds"
    assert runner.run(MLM, output)["status"] == 0
    assert runner.run(MLM, output, "--random_seed=2")["status"] == 2
    assert runner.run(MLM, output, "--random_seed=2", "--overwrite")["status"] == 0


REFUSED = [(row.flag, *case) for row in ROWS for case in row.refused]


@pytest.mark.parametrize(
    ("flag", "beside", "message"), REFUSED, ids=[f"{name_of(f)}-{b[0]}" for f, b, _ in REFUSED]
)
def test_a_flag_without_effect_is_refused(
    flag: str,
    beside: tuple[str, ...],
    message: str,
    runner: Runner,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["text", *runner.arguments((*beside, flag), tmp_path / "ds")]) == 2
    found = capsys.readouterr().err
    assert message in found
    assert found.count("\n") == 1
    assert not (tmp_path / "ds").exists()


def vocabulary_of(tmp_path: Path, *more: str) -> str:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*make_vocabulary(), *more]) + "\n", encoding="utf-8")
    return f"--vocab_file={path}"


class TestCaseOfTheVocabulary:
    def run(self, runner: Runner, tmp_path: Path, *flags: str) -> int:
        return main(["text", *runner.arguments((MLM, *flags), tmp_path / "ds")])

    def test_a_cased_one_with_lower_casing_is_refused(
        self, runner: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = [word.capitalize() for word in make_vocabulary() if word.isalpha()]
        vocabulary = vocabulary_of(tmp_path, *dict.fromkeys(words))
        assert self.run(runner, tmp_path, vocabulary) == 2
        assert "is cased (" in (found := capsys.readouterr().err)
        assert "give --no-do_lower_case" in found
        assert self.run(runner, tmp_path, vocabulary, "--no-do_lower_case") == 0

    def test_special_tokens_do_not_count(
        self, runner: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        vocabulary = vocabulary_of(tmp_path, "[BOS]", "<S>")
        assert self.run(runner, tmp_path, vocabulary, "--no-do_lower_case") == 2
        assert "every word with one would be [UNK]" in capsys.readouterr().err

    def test_without_letters_there_is_no_case(self, runner: Runner, tmp_path: Path) -> None:
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "一", "二", "三"]
        (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
        (tmp_path / "zh.txt").write_text("一二三\n" * 50, encoding="utf-8")
        flags = (f"--vocab_file={tmp_path}/vocab.txt", f"--input={tmp_path}/zh.txt")
        for flag in ("--do_lower_case", "--no-do_lower_case"):
            assert self.run(runner, tmp_path, *flags, "--overwrite", flag) == 0
