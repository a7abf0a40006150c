"""`--keep_fields` of `recordmill text`: fields of documents in the records made of them."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main

from ..conftest import make_documents
from .jobs import manifest, records, shard_bytes
from .test_text_classify import parsed

KEPT = "--keep_fields=meta.url,year:int,score:float"
FLAGS = ("--task=mlm", "--max_seq_length=32", "--max_predictions_per_seq=5", "--num_shards=2")


def run(source: Path, output: Path, vocab_file: str, *flags: str, workers: int = 1) -> int:
    return main(
        [
            "text", f"--input={source}", f"--output={output}", f"--vocab_file={vocab_file}",
            f"--direct_num_workers={workers}", *FLAGS, *flags,
        ]
    )  # fmt: skip


def url_of(number: int) -> Any:
    """Text of odd and even size, and with letters of several bytes; now and then no text."""
    return [f"https://x.org/{'ü' * (number % 4)}{number}", number, {"a": [number]}][number % 3]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "in.jsonl"
    with path.open("w", encoding="utf-8") as handle:
        for i, sentences in enumerate(make_documents(60, seed=4, sentences=12)):
            # The first word of each text tells its number.
            row = {"text": " ".join(sentences), "meta": {"url": url_of(i)}, "year": 2000 + i}
            handle.write(json.dumps(row | {"score": i / 4}) + "\n")
    return path


@pytest.fixture(scope="module")
def dataset(source: Path, vocab_file: str) -> Path:
    output = source.parent / "ds"
    flags = (KEPT, "--dupe_factor=2", "--splits=train:0.7,test:0.3")
    assert run(source, output, vocab_file, *flags) == 0
    return output


def expected_fields(number: int) -> tuple[bytes, float]:
    url = url_of(number)
    text = url if isinstance(url, str) else json.dumps(url, ensure_ascii=False)
    return text.encode(), number / 4


class TestWindows:
    def test_each_window_has_the_fields_of_its_document(
        self, dataset: Path, source: Path, vocab_file: str
    ) -> None:
        made = [parsed(record) for record in records(dataset)]
        assert {row["year"][0] - 2000 for row in made} == set(range(60))
        for row in made:
            wanted = expected_fields(row["year"][0] - 2000)
            assert (row["meta.url"][0], row["score"][0]) == wanted
        tokens = Path(vocab_file).read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in source.read_text().splitlines()]
        for row in made:
            # What was masked is put back; then every window is a part of its own document.
            ids = list(row["input_ids"])
            for at, before, weight in zip(
                row["masked_lm_positions"], row["masked_lm_ids"], row["masked_lm_weights"],
                strict=True,
            ):  # fmt: skip
                ids[at] = before if weight else ids[at]
            shown = [tokens[i] for i in ids[1 : sum(row["input_mask"]) - 1]]
            joined = "".join(token.removeprefix("##") for token in shown)
            assert joined in texts[row["year"][0] - 2000].lower().replace(" ", "")

    def test_nothing_else_changes(self, source: Path, dataset: Path, vocab_file: str) -> None:
        plain = source.parent / "plain"
        flags = ("--dupe_factor=2", "--splits=train:0.7,test:0.3")
        assert run(source, plain, vocab_file, *flags) == 0
        kept = {"meta.url", "year", "score"}
        with_fields = [parsed(record) for record in records(dataset)]
        without = [[item for item in sorted(r.items()) if item[0] not in kept] for r in with_fields]
        everything = [sorted(parsed(record).items()) for record in records(plain)]
        assert sorted(without) == sorted(everything)

    def test_golden_bytes(self, dataset: Path) -> None:
        data = b"".join(shard_bytes(dataset).values())
        assert blake2b(data, digest_size=8).hexdigest() == "48f7440aa0ee0205"

    @pytest.mark.slow
    def test_workers_and_work_items_do_not_matter(
        self,
        dataset: Path,
        source: Path,
        vocab_file: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        from recordmill.pipelines.planning import text_planner
        from recordmill.transforms.shuffle.merge_tree import MergeTree

        flags = (KEPT, "--dupe_factor=2", "--splits=train:0.7,test:0.3")
        assert run(source, tmp_path / "two", vocab_file, *flags, workers=2) == 0
        assert shard_bytes(tmp_path / "two") == shard_bytes(dataset)
        monkeypatch.setattr(text_planner, "work_item_bytes", lambda *_: 4_000)
        monkeypatch.setattr(
            text_planner, "choose_merge_tree", lambda work_items, *_: MergeTree(work_items, 3, 4)
        )
        assert run(source, tmp_path / "small", vocab_file, *flags) == 0
        assert shard_bytes(tmp_path / "small") == shard_bytes(dataset)

    def test_verify_and_the_readers(self, dataset: Path) -> None:
        from recordmill.reader import load

        assert main(["verify", str(dataset)]) == 0
        batch = next(iter(load(dataset, "train", batch_size=4, shuffle=False)))
        number = int(batch["year"][0]) - 2000
        assert batch["meta.url"][0].numpy() == expected_fields(number)[0]


def test_tokens_as_examples(source: Path, tmp_path: Path, vocab_file: str) -> None:
    flags = [
        "text", f"--input={source}", f"--output={tmp_path}/ds", f"--vocab_file={vocab_file}",
        "--task=mlm_tokens", "--record_type=example", "--max_seq_length=32", KEPT,
        "--direct_num_workers=1",
    ]  # fmt: skip
    assert main(flags) == 0
    made = [parsed(record) for record in records(tmp_path / "ds")]
    assert {row["year"][0] - 2000 for row in made} == set(range(60))
    for row in made:
        assert row["meta.url"][0] == expected_fields(row["year"][0] - 2000)[0]


def test_documents_without_a_field_are_rejects(tmp_path: Path, vocab_file: str) -> None:
    rows = [
        {"text": "the people", "year": 1}, {"text": "the people"}, {"text": "the", "year": None},
        {"text": "the", "year": "old"}, {"text": "the", "year": 1 << 63},
    ]  # fmt: skip
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ("--keep_fields=year:int", "--dupe_factor=1", "--num_shards=1", "--warnings=none")
    assert run(source, tmp_path / "ds", vocab_file, *flags) == 1
    assert run(source, tmp_path / "ds", vocab_file, *flags, "--max_rejected=0.8") == 0
    assert manifest(tmp_path / "ds")["counts"]["rejected"] == {"bad_row": 2, "field_missing": 2}
