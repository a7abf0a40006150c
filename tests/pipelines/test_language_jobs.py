"""Jobs of language models as users run them: the same bytes always, whole, and read as written."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.planning import text_planner as text_planning
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.text import build_text_shards as build
from recordmill.transforms.text.text_spec import CausalFormat, Packing
from recordmill.transforms.text.tokenizer_files import load_tokenizer

from ..conftest import SharedFolder, make_documents
from ..transforms.subwords import trained
from .jobs import manifest, shard_bytes, unpublished

LENGTH = 64
# Name -> flags; the ids are of a byte-level BPE with <pad>, <mask> and <|endoftext|>.
CONFIGURATIONS = {
    "gpt": ("--task=gpt", "--packing=best_fit"),
    "gpt-maxtext": ("--task=gpt", "--format=maxtext", "--packing=concat"),
    "gpt-seqio": ("--task=gpt", "--format=seqio", "--packing=none", "--keep_fields=id:int"),
    "t5": ("--task=t5", "--dupe_factor=2", "--packing=best_fit"),
    "t5-cerebras": ("--task=t5", "--format=cerebras", "--dupe_factor=1"),
    "t5_tokens": ("--task=t5_tokens", "--packing=concat"),
    "ul2": ("--task=ul2", "--dupe_factor=1"),
    "mlm": (
        "--task=mlm", "--packing=best_fit", "--dupe_factor=1", "--max_predictions_per_seq=10",
        "--use_segment_ids", "--use_position_id",
    ),
}  # fmt: skip


def run(folder: Path, output: Path, *flags: str, workers: int = 1) -> int:
    return main(
        [
            "text", f"--input={folder}/in.jsonl", f"--output={output}", "--num_shards=3",
            f"--tokenizer={folder}/tokenizer.json", f"--max_seq_length={LENGTH}",
            f"--direct_num_workers={workers}", *flags,
        ]
    )  # fmt: skip


def write(folder: Path, output: Path, name: str, *flags: str, workers: int = 1) -> int:
    return run(folder, output, *CONFIGURATIONS[name], *flags, workers=workers)


@pytest.fixture(scope="session")
def folder(shared_folder: SharedFolder) -> Path:
    def fill(folder: Path) -> None:
        (folder / "tokenizer.json").write_bytes(trained.byte_pairs())
        with (folder / "in.jsonl").open("w", encoding="utf-8") as handle:
            for i, document in enumerate(make_documents(120, seed=1)):
                text = "\n".join(document[: 1 + i % 9]) + ("\n\n  x  = 1\n" if i % 5 == 0 else "")
                handle.write(json.dumps({"text": text, "id": i}) + "\n")
        for name in CONFIGURATIONS:
            assert write(folder, folder / name, name) == 0

    return shared_folder("language-jobs", fill)


def loaded(dataset: Path) -> dict[str, list[Any]]:
    """All records, by our reader, in written order."""
    from recordmill.reader import load

    columns: dict[str, list[Any]] = {}
    for batch in load(dataset, "train", batch_size=1, shuffle=False):
        for name, values in batch.items():
            columns.setdefault(name, []).append(values.numpy()[0])
    return columns


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_bytes_do_not_show_how_text_was_read(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_planning, "work_item_bytes", lambda *_: 3_000)
    monkeypatch.setattr(
        text_planning, "choose_merge_tree", lambda items, *_: MergeTree(items, 3, 4)
    )
    assert write(folder, tmp_path / "ds", name) == 0
    assert shard_bytes(tmp_path / "ds") == shard_bytes(folder / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "t5"])
def test_bytes_of_two_workers(folder: Path, tmp_path: Path, name: str) -> None:
    assert write(folder, tmp_path / "ds", name, workers=2) == 0
    assert shard_bytes(tmp_path / "ds") == shard_bytes(folder / name)


@pytest.mark.parametrize("name", ["gpt", "ul2"])
def test_a_run_goes_on_where_it_ended(folder: Path, tmp_path: Path, name: str) -> None:
    with unpublished():
        assert write(folder, tmp_path / "ds", name) == 1
    assert not (tmp_path / "ds/_SUCCESS").exists()
    assert write(folder, tmp_path / "ds", name) == 0
    assert shard_bytes(tmp_path / "ds") == shard_bytes(folder / name)


def test_rejects_are_listed_and_the_rest_is_written(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "in.jsonl").read_text().splitlines()
    broken = [*lines[:60], '{"text": 5}', "{", *lines[60:]]
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (tmp_path / "in.jsonl").write_text("\n".join(broken) + "\n")
    assert write(tmp_path, tmp_path / "ds", "gpt", "--max_rejected=0.1") == 0
    counts = manifest(tmp_path / "ds")["counts"]
    assert counts["rejected"] == {"field_not_text": 1, "not_json": 1}
    assert counts["documents_read"] == len(lines)


@pytest.mark.parametrize("task", ["t5", "t5_tokens", "ul2"])
def test_a_split_whose_rows_are_all_left_out_is_an_error(
    folder: Path, tmp_path: Path, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    rows = [{"text": "a", "of": "test"}, {"text": "some words and more", "of": "train"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ("--packing=none", "--splits=train,test", "--split_from=of", "--num_shards=1")
    output = tmp_path / "ds"
    for _ in range(2):
        assert run(tmp_path, output, f"--task={task}", *flags) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert "no examples for split test: all its rows (" in error
    assert not (output / "_SUCCESS").exists()
    assert run(tmp_path, output, "--task=gpt", *flags) == 0


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_datasets_are_whole(folder: Path, name: str) -> None:
    assert main(["verify", str(folder / name)]) == 0
    assert main(["inspect", str(folder / name)]) == 0


def texts(folder: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (folder / "in.jsonl").read_text().splitlines()]


def test_gpt_has_the_ids_of_whole_texts(folder: Path) -> None:
    """Line ends and leading spaces too, as the library gives them for the text at once."""
    import tokenizers

    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer((folder / "tokenizer.json").read_bytes(), "tokenizer.json")
    end = tokenizer.special.end_of_text_id
    expected = {
        i: [*reference.encode(text, add_special_tokens=False).ids, end]
        for i, text in enumerate(texts(folder))
    }
    found: dict[int, Counter[tuple[int, ...]]] = {}
    columns = loaded(folder / "gpt-seqio")
    for number, row in zip(columns["id"], columns["targets"], strict=True):
        found.setdefault(int(number), Counter())[tuple(np.asarray(row).tolist())] += 1
    for number, ids in expected.items():
        parts = Counter(tuple(ids[begin : begin + LENGTH]) for begin in range(0, len(ids), LENGTH))
        assert found[number] == parts


AWKWARD = (
    "\n\n  def f(x):\n\n\n    return x  \r\n\ttail \n\n\n", "no end", " \n", 
    "it\n's\n\u3000a\n b\n\n\nc\n",
)  # fmt: skip


def test_plain_text_is_kept_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    """Files, what is between blank lines, and lines: their tokens are those of the library."""
    import tokenizers

    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    (tmp_path / "in").mkdir()
    written = [*AWKWARD, *texts(folder)]
    for i, text in enumerate(written):
        (tmp_path / f"in/{i:03d}.txt").write_bytes(text.encode())
    between = [re.split(r"\r?\n(?:\s*\n)+", text.strip("\r\n")) for text in written]
    lines = [line.removesuffix("\r") for text in written for line in text.split("\n")]
    for documents, wanted, *flags in (
        ("file", written),
        ("file", [text.strip() for text in written], "--strip"),
        ("line", [line for line in lines if line.strip()]),
        ("blank_line", [part for parts in between for part in parts if part.strip()]),
    ):
        job = ["--task=gpt", "--format=seqio", "--packing=none", f"--documents={documents}"]
        line = ["text", f"--input={tmp_path}/in", f"--output={tmp_path}/ds", *job, *flags]
        line += [f"--tokenizer={folder}/tokenizer.json", "--max_seq_length=4000", "--overwrite"]
        assert main(line) == 0
        encoded = reference.encode_batch(list(filter(None, wanted)), add_special_tokens=False)
        rows = [np.asarray(row).tolist() for row in loaded(tmp_path / "ds")["targets"]]
        assert sorted(rows) == sorted([*each.ids, rows[0][-1]] for each in encoded)
        found = reference.decode_batch(rows, skip_special_tokens=True)
        assert sorted(found) == sorted(filter(None, wanted))


def test_every_token_is_written_once(folder: Path) -> None:
    tokens = Counter(int(t) for row in loaded(folder / "gpt-seqio")["targets"] for t in row)
    gpt = loaded(folder / "gpt")
    found: Counter[int] = Counter()
    for inputs, mask, labels in zip(
        gpt["input_ids"], gpt["input_mask"], gpt["labels"], strict=True
    ):
        size = int(mask.sum()) + 1
        found.update([*inputs.tolist(), int(labels[-1])][:size])
    assert found == tokens
    maxtext = loaded(folder / "gpt-maxtext")
    found = Counter(
        token
        for ids, segments in zip(maxtext["inputs"], maxtext["inputs_segmentation"], strict=True)
        for token in ids[segments > 0].tolist()
    )
    assert found == tokens
    found = Counter(int(t) for row in loaded(folder / "t5_tokens")["targets"] for t in row)
    assert found == tokens


# Name -> flags, and whether a row of one document has its end.
COMBINATIONS = {
    f"gpt-{form}-{packing}": (("--task=gpt", f"--format={form}", f"--packing={packing}"), True)
    for form in get_args(CausalFormat)
    for packing in get_args(Packing)
} | {
    f"{task}-{packing}": ((f"--task={task}", f"--packing={packing}"), packing != "none")
    for task in ("t5", "t5_tokens", "ul2", "mlm")
    for packing in get_args(Packing)
    if (task, packing) != ("mlm", "none")  # windows, not rows
}


def tokens_of(columns: dict[str, list[Any]], special: int) -> Counter[int]:
    """The tokens of all rows, before anything was masked or hidden.

    Args:
      columns: of a dataset of language models.
      special: ids from this one on are sentinels.
    """
    found: Counter[int] = Counter()
    for i in range(len(next(iter(columns.values())))):
        row = {name: np.asarray(values[i]).tolist() for name, values in columns.items()}
        if "masked_lm_positions" in row:
            masked = zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True)
            for number, (position, token) in enumerate(masked):
                if row["masked_lm_weights"][number]:
                    row["input_ids"][position] = token
            found.update(row["input_ids"][: sum(row["input_mask"])])
        elif "labels" in row:
            size = sum(row["input_mask"]) + 1
            found.update([*row["input_ids"], row["labels"][-1]][:size])
        elif "inputs_segmentation" in row:
            found.update(t for t, s in zip(row["inputs"], row["inputs_segmentation"], strict=True)
                         if s)  # fmt: skip
        elif "inputs" in row:  # each has an end
            for name in ("inputs", "targets"):
                found.update(token for token in row[name][:-1] if token < special)
        else:
            found.update(row["targets"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_tokens_of_a_dataset_are_those_of_its_input(
    folder: Path, tmp_path: Path, name: str
) -> None:
    """For each objective, format and packing, as the library tokenizes."""
    import tokenizers

    flags, has_ends = COMBINATIONS[name]
    more = {"t5": ("--dupe_factor=2",), "ul2": ("--dupe_factor=1",)}.get(name.split("-")[0], ())
    if name.startswith("mlm"):
        more = ("--dupe_factor=1", "--max_predictions_per_seq=10")
    assert run(folder, tmp_path / "ds", *flags, *more) == 0
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer((folder / "tokenizer.json").read_bytes(), "tokenizer.json")
    expected: Counter[int] = Counter()
    for text in texts(folder):
        # To masked models lines are sentences, and their ends are no text.
        for part in text.split("\n") if name.startswith("mlm") else [text]:
            expected.update(reference.encode(part, add_special_tokens=False).ids)
    end = tokenizer.special.end_of_text_id
    if name.startswith("mlm"):
        end = None
    if has_ends and end is not None:
        expected[end] += len(texts(folder))
    copies = 2 if name.startswith("t5-") else 1
    found = tokens_of(loaded(tmp_path / "ds"), special=len(tokenizer))
    if name.startswith("mlm"):  # [CLS] and [SEP] around each document
        cls, sep = tokenizer.special.cls_id, tokenizer.special.sep_id
        assert found.pop(cls) == found.pop(sep)
    assert found == Counter({token: copies * n for token, n in expected.items()})


@pytest.mark.parametrize(("name", "blocks"), [("gpt", "BEST_FIT_"), ("gpt-maxtext", "")])
def test_blocks_of_a_shard_lose_no_token_and_are_large_for_best_fit(
    folder: Path, tmp_path: Path, name: str, blocks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = 1 << 23 if blocks else 1 << 21
    assert build.block_tokens("best_fit" if blocks else "concat") == tokens
    monkeypatch.setattr(build, f"{blocks}BLOCK_TOKENS", 700)
    assert write(folder, tmp_path / "ds", name, "--num_shards=1") == 0
    whole = tokens_of(loaded(folder / name), special=1 << 30)
    assert tokens_of(loaded(tmp_path / "ds"), special=1 << 30) == whole
    rows, fewer = (
        json.loads((dataset / "_meta/statistics.json").read_bytes())["train"]["examples"]
        for dataset in (tmp_path / "ds", folder / name)
    )
    assert rows > fewer  # small blocks leave more room


def test_shapes_and_types_are_those_of_the_reader_named(folder: Path) -> None:
    def shapes(name: str) -> dict[str, tuple[Any, ...]]:
        columns = loaded(folder / name)
        return {key: (rows[0].dtype.name, *rows[0].shape) for key, rows in columns.items()}

    row = ("int32", LENGTH)
    assert shapes("gpt") == {"input_ids": row, "input_mask": row, "labels": row}
    names = [f"{side}{part}" for side in ("inputs", "targets") for part in
             ("", "_segmentation", "_position")]  # fmt: skip
    assert shapes("gpt-maxtext") == dict.fromkeys(names, row)
    cerebras = shapes("t5-cerebras")
    target = cerebras["labels"]
    assert cerebras == {
        "encoder_input_ids": row, "encoder_mask": row, "encoder_input_length": ("int32",),
        "decoder_input_ids": target, "decoder_mask": target, "decoder_input_length": ("int32",),
        "labels": target, "loss_scale": ("float32", *target[1:]),
    }  # fmt: skip


def test_the_reader_makes_of_t5_tokens_what_t5_writes(folder: Path) -> None:
    from recordmill.reader import corrupt_spans, load
    from recordmill.records.noise import NoiseCounts

    tokenizer = load_tokenizer((folder / "tokenizer.json").read_bytes(), "tokenizer.json")
    raw = NoiseCounts(0.15, 3.0).raw_length(LENGTH)
    transform = corrupt_spans(
        vocab_size=len(tokenizer) + 100, max_seq_length=raw, names="cerebras",
        encoder_length=LENGTH, eos_id=tokenizer.special.end_of_text_id or 0,
        pad_id=tokenizer.special.pad_id or 0,
    )  # fmt: skip
    batches = load(folder / "t5_tokens", "train", batch_size=4, shuffle=False, transform=transform)
    batch = next(iter(batches))
    static = loaded(folder / "t5-cerebras")
    assert set(batch) == set(static)
    for name, rows in static.items():
        assert batch[name].dtype.name == rows[0].dtype.name, name
        assert tuple(batch[name].shape[1:]) == rows[0].shape, name


def test_statistics_tell_how_full_rows_are(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def statistics(name: str) -> dict[str, Any]:
        content = json.loads((folder / name / "_meta/statistics.json").read_bytes())
        return dict(content["train"])

    sums = statistics("gpt")
    documents = len(texts(folder))
    assert sums["documents_in_rows"] == documents
    tokens = Counter(len(row) for row in loaded(folder / "gpt-seqio")["targets"])
    total = sum(size * number for size, number in tokens.items())
    assert sums["tokens"] == total
    assert sums["fill_rate"] == round(total / (sums["examples"] * (LENGTH + 1)), 6)
    assert 0.9 < sums["fill_rate"] <= 1
    assert statistics("gpt-maxtext")["documents_cut"] > sums["documents_cut"]
    assert sums["documents_cut_rate"] == round(sums["documents_cut"] / documents, 6)
    assert abs(statistics("t5")["noise_rate"] - 0.15) < 0.02
    assert write(folder, tmp_path / "ds", "gpt") == 0
    printed = capsys.readouterr().out
    assert "of packed rows filled" in printed
    assert "of documents cut" in printed


def test_decoded_examples_are_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["inspect", str(folder / "t5-cerebras"), "--examples=1"]) == 0
    shown = capsys.readouterr().out
    assert "encoder_input_ids" in shown
    assert "labels" in shown
