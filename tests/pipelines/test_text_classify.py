"""`--task=classify`: every row becomes one example, the one that BERT's run_classifier makes."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from tokenizers import BertWordPieceTokenizer

from recordmill.pipelines.command_line import main

from ..conftest import make_documents
from .jobs import manifest, records, shard_bytes

LENGTH = 24
Row = dict[str, Any]


def run(source: Path | str, output: Path, vocab_file: str, *flags: str, workers: int = 1) -> int:
    return main(
        [
            "text", f"--input={source}", f"--output={output}", f"--vocab_file={vocab_file}",
            "--task=classify", f"--max_seq_length={LENGTH}", f"--direct_num_workers={workers}",
            *flags,
        ]
    )  # fmt: skip


def parsed(record: bytes) -> Row:
    """Returns the values of a record's features, by plain protobuf."""
    import tensorflow as tf

    features = tf.train.Example.FromString(record).features.feature
    return {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()}


def rows_of(output: Path) -> list[Row]:
    return [parsed(record) for record in records(output)]


def statistics(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "_meta/statistics.json").read_bytes()))


def truncate(first: list[int], second: list[int], most: int) -> None:
    """BERT's `_truncate_seq_pair`."""
    while len(first) + len(second) > most:
        (first if len(first) > len(second) else second).pop()


def expected(row: Row, vocab_file: str, *, pair: str = "") -> tuple[int, ...]:
    """Returns input_ids, input_mask and segment_ids, one behind the other, as run_classifier."""
    tokenizer = BertWordPieceTokenizer(vocab_file, lowercase=True)
    first = tokenizer.encode(row["text"], add_special_tokens=False).ids
    second = tokenizer.encode(row[pair], add_special_tokens=False).ids if pair else []
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    truncate(first, second, LENGTH - (3 if second else 2))
    ids = [cls, *first, sep, *second, *([sep] if second else [])]
    segments = [0] * (len(first) + 2) + [1] * (len(ids) - len(first) - 2)
    padding = [0] * (LENGTH - len(ids))
    return (*ids, *padding, *[1] * len(ids), *padding, *segments, *padding)


def found(row: Row, names: tuple[str, ...] = ("input_ids", "input_mask", "segment_ids")) -> Any:
    return tuple(value for name in names for value in row[name])


def make_rows(count: int = 200) -> list[Row]:
    """Rows of texts of 0 to 60 words with what a tokenizer may stumble over."""
    rng = random.Random(7)
    words = [word for document in make_documents(20) for s in document for word in s.split()]
    words += ["Ünïcode,", "\n", "\t", "don't", "東京", "\u00ad", "zzzqqq"]
    return [
        {
            "id": i, "text": "the " + " ".join(rng.choices(words, k=rng.choice([0, 3, 20, 60]))),
            "other": "of " + " ".join(rng.choices(words, k=rng.choice([0, 5, 20, 60]))),
            "label": rng.choice(["spam", "ham", "eggs"]),
        }
        for i in range(count)
    ]  # fmt: skip


def write_jsonl(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return make_rows()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("rows") / "rows.jsonl", rows)


@pytest.fixture(scope="module")
def single(source: Path, vocab_file: str) -> Path:
    output = source.parent / "single"
    assert run(source, output, vocab_file, "--keep_fields=id:int", "--num_shards=2") == 0
    return output


@pytest.fixture(scope="module")
def pairs(source: Path, vocab_file: str) -> Path:
    output = source.parent / "pairs"
    flags = ("--text_pair_field=other", "--keep_fields=id:int", "--splits=train:0.8,test:0.2")
    assert run(source, output, vocab_file, *flags, "--num_shards=2") == 0
    return output


class TestExamples:
    @pytest.mark.parametrize("pair", ["", "other"])
    def test_each_row_is_the_example_of_a_plain_reference(
        self, single: Path, pairs: Path, rows: list[Row], vocab_file: str, pair: str
    ) -> None:
        made = rows_of(pairs if pair else single)
        assert sorted(row["id"][0] for row in made) == [row["id"] for row in rows]
        for row in made:
            number = row["id"][0]
            assert found(row) == expected(rows[number], vocab_file, pair=pair)
            assert row["label_ids"] == [["eggs", "ham", "spam"].index(rows[number]["label"])]
            assert row["is_real_example"] == [1]

    def test_rows_are_shuffled(self, single: Path) -> None:
        numbers = [row["id"][0] for row in rows_of(single)]
        assert len(set(numbers)) == len(numbers)
        rising = sum(a < b for a, b in itertools.pairwise(numbers))
        assert 0.3 < rising / len(numbers) < 0.7

    @pytest.mark.parametrize(
        ("form", "digest"), [("single", "15e45afd3e5a152e"), ("pairs", "573765e695abbc0f")]
    )
    def test_golden_bytes(self, request: pytest.FixtureRequest, form: str, digest: str) -> None:
        data = b"".join(shard_bytes(request.getfixturevalue(form)).values())
        assert blake2b(data, digest_size=8).hexdigest() == digest

    @pytest.mark.slow
    def test_two_workers_and_small_work_items_write_the_same(
        self,
        pairs: Path,
        source: Path,
        vocab_file: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        from recordmill.pipelines.planning import text_planner
        from recordmill.transforms.shuffle.merge_tree import MergeTree

        flags = ("--text_pair_field=other", "--keep_fields=id:int", "--splits=train:0.8,test:0.2")
        assert run(source, tmp_path / "two", vocab_file, *flags, "--num_shards=2", workers=2) == 0
        assert shard_bytes(tmp_path / "two") == shard_bytes(pairs)
        monkeypatch.setattr(text_planner, "work_item_bytes", lambda *_: 4_000)
        monkeypatch.setattr(
            text_planner, "choose_merge_tree", lambda work_items, *_: MergeTree(work_items, 3, 4)
        )
        assert run(source, tmp_path / "small", vocab_file, *flags, "--num_shards=2") == 0
        assert shard_bytes(tmp_path / "small") == shard_bytes(pairs)

    def test_v2_names(self, source: Path, vocab_file: str, tmp_path: Path) -> None:
        assert run(source, tmp_path / "ds", vocab_file, "--use_v2_feature_names") == 0
        names = {"input_word_ids", "input_mask", "input_type_ids", "label_ids", "is_real_example"}
        assert {frozenset(row) for row in rows_of(tmp_path / "ds")} == {frozenset(names)}


class TestLabels:
    def test_names_are_sorted(self, single: Path, rows: list[Row]) -> None:
        assert (single / "labels.txt").read_text() == "eggs\nham\nspam\n"
        counts = Counter(row["label"] for row in rows)
        assert statistics(single)["train"]["classes"] == dict(sorted(counts.items()))

    @pytest.mark.parametrize(
        ("labels", "numbers", "names"),
        [
            ([1, 3, 1], [1, 3, 1], "0\n1\n2\n3\n"),
            (["3", "1", "1"], [3, 1, 1], "0\n1\n2\n3\n"),
            ([-1, 10, 9], [0, 2, 1], "-1\n9\n10\n"),
            ([True, False, True], [1, 0, 1], "false\ntrue\n"),
            ([" a ", "b", "a"], [0, 1, 0], "a\nb\n"),
            ([2.0, 10.0, 0.0], [2, 10, 0], "".join(f"{i}\n" for i in range(11))),
            ([1.0, 1.5, 10.0], [0, 1, 2], "1.0\n1.5\n10.0\n"),
        ],
    )
    def test_what_labels_become(
        self, tmp_path: Path, vocab_file: str, labels: list[Any], numbers: list[int], names: str
    ) -> None:
        content = [{"text": "the", "id": i, "label": v} for i, v in enumerate(labels)]
        flags = ("--keep_fields=id:int", "--warnings=none")
        source = write_jsonl(tmp_path / "in.jsonl", content)
        assert run(source, tmp_path / "ds", vocab_file, *flags) == 0
        made = sorted((row["id"][0], row["label_ids"][0]) for row in rows_of(tmp_path / "ds"))
        assert [number for _, number in made] == numbers
        assert (tmp_path / "ds/labels.txt").read_text() == names

    def test_whole_numbers_are_found_in_a_file_of_labels(
        self, tmp_path: Path, vocab_file: str
    ) -> None:
        content = [{"text": "the", "id": i, "label": float(i)} for i in range(2)]
        (tmp_path / "order.txt").write_text("1\n0\n")
        source = write_jsonl(tmp_path / "in.jsonl", content)
        flags = (f"--labels={tmp_path}/order.txt", "--keep_fields=id:int", "--warnings=none")
        assert run(source, tmp_path / "ds", vocab_file, *flags) == 0
        made = {row["id"][0]: row["label_ids"][0] for row in rows_of(tmp_path / "ds")}
        assert made == {0: 1, 1: 0}
        assert statistics(tmp_path / "ds")["train"]["classes"] == {"0": 1, "1": 1}

    def test_a_number_in_two_forms_is_refused(
        self, tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        content = [{"text": "the", "label": label} for label in (1.0, 0.0, "1")]
        source = write_jsonl(tmp_path / "in.jsonl", content)
        assert run(source, tmp_path / "ds", vocab_file) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert "--label_field=label: labels must have a number in one form, and 1 and 1.0" in error

    def test_a_file_gives_the_order_and_rejects_others(
        self, source: Path, rows: list[Row], vocab_file: str, tmp_path: Path
    ) -> None:
        (tmp_path / "order.txt").write_text("spam\neggs\n")
        flags = (f"--labels={tmp_path}/order.txt", "--keep_fields=id:int", "--max_rejected=0.9")
        assert run(source, tmp_path / "ds", vocab_file, *flags) == 0
        for row in rows_of(tmp_path / "ds"):
            assert ["spam", "eggs"][row["label_ids"][0]] == rows[row["id"][0]]["label"]
        counts = manifest(tmp_path / "ds")["counts"]
        lost = sum(row["label"] == "ham" for row in rows)
        assert counts["rejected"] == {"unknown_label": lost}
        assert counts["examples"] == counts["documents_read"] == len(rows) - lost
        assert (tmp_path / "ds/labels.txt").read_text() == "spam\neggs\n"

    def test_numbers_are_floats(self, tmp_path: Path, vocab_file: str) -> None:
        content = [{"text": "the", "score": i / 4} for i in range(40)]
        source = write_jsonl(tmp_path / "in.jsonl", content)
        flags = ("--label_field=score", "--labels=number", "--warnings=none")
        assert run(source, tmp_path / "ds", vocab_file, *flags) == 0
        made = sorted(row["label_ids"][0] for row in rows_of(tmp_path / "ds"))
        assert made == [i / 4 for i in range(40)]
        assert not (tmp_path / "ds/labels.txt").exists()
        assert "classes" not in statistics(tmp_path / "ds")["train"]
        assert main(["verify", str(tmp_path / "ds")]) == 0

    def test_fractions_are_no_classes(
        self, tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        content = [{"text": "the", "label": i / 4 + 0.1} for i in range(40)]
        source = write_jsonl(tmp_path / "in.jsonl", content)
        assert run(source, tmp_path / "ds", vocab_file) == 1
        assert "--labels=number is needed where labels are numbers" in capsys.readouterr().err
        assert not (tmp_path / "ds/_SUCCESS").exists()
        flags = ("--labels=number", "--overwrite", "--warnings=none")
        assert run(source, tmp_path / "ds", vocab_file, *flags) == 0


class TestTables:
    @pytest.mark.parametrize(
        ("name", "text", "flags"),
        [
            ("a.csv", 'label,text\na,"the, of"\nb,to\n', ()),
            ("a.tsv", "text\tlabel\nthe, of\ta\nto\tb\n", ()),
            ("c.tsv", "label\ttext\na\tthe, of\nb\tto\n", ("--quoting=none",)),
            ("b.tsv", "a\tthe, of\nb\tto\n", ("--header=none", "--columns=label,text")),
        ],
    )
    def test_the_same_rows(
        self, tmp_path: Path, vocab_file: str, name: str, text: str, flags: tuple[str, ...]
    ) -> None:
        content = [{"text": "the, of", "label": "a"}, {"text": "to", "label": "b"}]
        source = write_jsonl(tmp_path / "in.jsonl", content)
        assert run(source, tmp_path / "plain", vocab_file, "--warnings=none") == 0
        (tmp_path / name).write_text(text)
        flags = (*flags, "--warnings=none")
        assert run(tmp_path / name, tmp_path / "ds", vocab_file, *flags) == 0
        assert sorted(records(tmp_path / "ds")) == sorted(records(tmp_path / "plain"))

    def test_rows_of_glue_have_quotes_that_enclose_nothing(
        self,
        tmp_path: Path,
        vocab_file: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        from recordmill.pipelines.planning import text_planner

        lines = [f'{i}\t{i % 2}\t"the number {i} of all\n' for i in range(300)]
        (tmp_path / "train.tsv").write_text("id\tlabel\ttext\n" + "".join(lines))
        source, flags = tmp_path / "train.tsv", ("--keep_fields=id:int", "--warnings=none")
        assert run(source, tmp_path / "no", vocab_file, *flags) == 1
        assert "broken_row" in capsys.readouterr().err
        flags = (*flags, "--quoting=none")
        assert run(source, tmp_path / "ds", vocab_file, *flags) == 0
        assert sorted(row["id"][0] for row in rows_of(tmp_path / "ds")) == list(range(300))
        monkeypatch.setattr(text_planner, "work_item_bytes", lambda *_: 700)
        assert run(source, tmp_path / "many", vocab_file, *flags) == 0
        assert shard_bytes(tmp_path / "many") == shard_bytes(tmp_path / "ds")

    @pytest.mark.parametrize("flag", ["--label_field", "--text_pair_field", "--keep_fields"])
    def test_a_column_that_is_not_there(
        self, tmp_path: Path, vocab_file: str, flag: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "a.csv").write_text("label,text\na,the\n")
        assert run(tmp_path / "a.csv", tmp_path / "ds", vocab_file, f"{flag}=none") == 2
        assert f"{flag} must be a column of" in capsys.readouterr().err


def test_what_cannot_be_used_is_a_reject(tmp_path: Path, vocab_file: str) -> None:
    bad = {
        "no_label": {"text": "the", "other": "of", "label": None},
        "no_text": {"text": " \n", "other": "of", "label": "a"},
        "field_missing": {"text": "the", "other": "of"},
        "field_not_text": {"text": ["the"], "other": "of", "label": "a"},
        "bad_row": {"text": "the", "other": "of", "label": ["a", "b"]},
    }
    more = [
        {"text": "the", "other": "", "label": "a"},
        {"text": "the", "other": "of", "label": "  "},
        {"text": "the", "other": "of", "label": "a\u2028b"},
        {"text": "the", "label": "a"},
        {"text": "the", "other": None, "label": "a"},
    ]
    good = [{"text": "the", "other": "of", "label": "ab"[i % 2]} for i in range(10)]
    source = write_jsonl(tmp_path / "in.jsonl", [*bad.values(), *good, *more])
    flags = ("--text_pair_field=other", "--warnings=none")
    assert run(source, tmp_path / "ds", vocab_file, *flags) == 1
    assert run(source, tmp_path / "ds", vocab_file, *flags, "--max_rejected=0.5") == 0
    counts = manifest(tmp_path / "ds")["counts"]
    assert counts["rejected"] == {
        "no_label": 2, "no_text": 3, "field_missing": 2, "field_not_text": 1, "bad_row": 2,
    }  # fmt: skip
    assert counts["examples"] == counts["documents_written"] == 10


class TestJudged:
    def test_warnings(
        self, tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        content = [{"text": "zzz €", "label": "a"}] * 9 + [{"text": "the", "label": "b"}]
        source = write_jsonl(tmp_path / "in.jsonl", content)
        assert run(source, tmp_path / "ds", vocab_file) == 0
        rules = {warning["rule"] for warning in statistics(tmp_path / "ds")["warnings"]}
        assert rules == {"padding", "unknown_tokens", "class_with_one_example"}
        shown = capsys.readouterr()
        assert "classes of train: 2: a 9, b 1" in shown.out
        assert "1 of 2 classes have one example (b)" in shown.err
        assert "the longest example has" in shown.err

    def test_one_class(self, tmp_path: Path, vocab_file: str) -> None:
        source = write_jsonl(tmp_path / "in.jsonl", [{"text": "the of " * 8, "label": "a"}] * 9)
        assert run(source, tmp_path / "ds", vocab_file, "--warnings=error") == 1
        assert run(source, tmp_path / "ds", vocab_file) == 0
        (warning,) = statistics(tmp_path / "ds")["warnings"]
        assert warning["rule"] == "one_class"
        assert "all 9 rows are of one class, 'a'" in warning["text"]
        assert "--label_field" in warning["text"]

    def test_examples_that_were_cut_are_counted(
        self, pairs: Path, rows: list[Row], vocab_file: str
    ) -> None:
        tokenizer = BertWordPieceTokenizer(vocab_file, lowercase=True)
        sizes = [
            sum(len(tokenizer.encode(row[n], add_special_tokens=False).ids) for n in names)
            for row in rows
            for names in [("text", "other")]
        ]
        cut = sum(size > LENGTH - 3 for size in sizes)
        sums = statistics(pairs)
        assert cut == sum(sums[split]["cut_examples"] for split in ("train", "test")) > 0


class TestReaders:
    def test_our_own_with_pairs_for_keras(self, pairs: Path, rows: list[Row]) -> None:
        from recordmill.reader import load

        inputs = ("input_ids", "input_mask", "segment_ids")
        dataset = load(pairs, "train", batch_size=16, as_pair=(inputs, "label_ids"), shuffle=False)
        features, labels = next(iter(dataset))
        assert set(features) == set(inputs)
        assert features["input_ids"].shape == (16, LENGTH)
        assert labels.shape == (16,)

    def test_keras_learns(self, single: Path) -> None:
        import tensorflow as tf

        from recordmill.reader import load

        dataset = load(single, "train", batch_size=16, as_pair=("input_ids", "label_ids"))
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Embedding(500, 4), tf.keras.layers.GlobalAveragePooling1D(),
                tf.keras.layers.Dense(3),
            ]
        )  # fmt: skip
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        history = model.fit(dataset, steps_per_epoch=5, shuffle=False, verbose=0)
        assert history.history["loss"][0] < 2

    def test_verify(self, single: Path, pairs: Path) -> None:
        assert main(["verify", str(single)]) == 0
        assert main(["verify", str(pairs)]) == 0


class TestRefused:
    def test_plain_text(
        self, tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "in.txt").write_text("the\n")
        assert run(tmp_path / "in.txt", tmp_path / "ds", vocab_file) == 2
        assert "--task=classify needs rows with fields: JSONL, CSV" in capsys.readouterr().err

    def test_a_kept_field_with_the_name_of_a_feature(
        self, source: Path, tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(source, tmp_path / "ds", vocab_file, "--keep_fields=label_ids") == 2
        assert "--keep_fields must name fields that --task=classify" in capsys.readouterr().err

    def test_labels_given_twice(
        self, source: Path, tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "l.txt").write_text("a\nb\na\n")
        assert run(source, tmp_path / "ds", vocab_file, f"--labels={tmp_path}/l.txt") == 2
        assert "--labels must name each label once, got 'a' twice" in capsys.readouterr().err
