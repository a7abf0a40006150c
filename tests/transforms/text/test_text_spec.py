"""The options of text jobs: what is refused, and what follows from them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from recordmill.records.errors import UsageError
from recordmill.records.spec import naming_flags, plain
from recordmill.transforms.text.text_spec import (
    T5,
    AnyObjective,
    Bert,
    Classify,
    CleanSpec,
    Gpt,
    Mlm,
    MlmTokens,
    T5Tokens,
    Ul2,
)

REFUSED: list[tuple[type[Any], dict[str, Any], str]] = [
    (Bert, {"max_seq_length": 7}, r"--max_seq_length must be in \[8, 1048576\], got 7"),
    (Bert, {"max_seq_length": (1 << 20) + 1}, r"--max_seq_length must be in \[8, 1048576\], got"),
    (Bert, {"dupe_factor": 0}, "--dupe_factor must be at least 1, got 0"),
    (Bert, {"short_seq_prob": -0.1}, r"--short_seq_prob must be in \[0, 1\], got -0\.1"),
    (Bert, {"short_seq_prob": 1.1}, r"--short_seq_prob must be in \[0, 1\], got 1\.1"),
    (Bert, {"masked_lm_prob": 1.5}, r"--masked_lm_prob must be in \(0, 1\), got 1\.5"),
    (Bert, {"masked_lm_prob": 0}, r"--masked_lm_prob must be in \(0, 1\), got 0"),
    (Bert, {"masked_lm_prob": "a"}, "--masked_lm_prob must be a number, got 'a'"),
    (Bert, {"max_predictions_per_seq": 0}, "--max_predictions_per_seq must be at least 1, got 0"),
    (
        Bert,
        {"max_predictions_per_seq": 128},
        "--max_predictions_per_seq must be below --max_seq_length=128, got 128",
    ),
    (Bert, {"max_ngram_size": 0}, "--max_ngram_size must be from 1 to 16, got 0"),
    (Bert, {"max_ngram_size": 17}, "--max_ngram_size must be from 1 to 16, got 17"),
    (Bert, {"replacement": "per_line"}, "--replacement must be one of"),
    (
        Bert,
        {"replacement": "per_word"},
        "--replacement has no effect without --do_whole_word_mask or --max_ngram_size",
    ),
    (Bert, {"sentence_splitter": "whole"}, "--sentence_splitter must be one of"),
    (Bert, {"sentence_order": True, "no_nsp": True}, "--no_nsp has no effect with --sentence_ord"),
    (Mlm, {"overlap_size": -1}, r"--overlap_size must be in \[0, 63\] for --max_seq_length=128"),
    (Mlm, {"overlap_size": 64}, r"--overlap_size must be in \[0, 63\] .* got 64"),
    (
        Mlm,
        {"overlap_size": 0, "min_short_seq_length": 0},
        r"--min_short_seq_length must be in \[1, 126\], got 0",
    ),
    (
        Mlm,
        {"overlap_size": 10, "min_short_seq_length": 10},
        r"--min_short_seq_length must be in \[11, 126\], got 10",
    ),
    (Mlm, {"min_short_seq_length": 127}, r"--min_short_seq_length must be in \[33, 126\], got 127"),
    (
        Mlm,
        {"min_short_seq_length": 50, "short_seq_prob": 0},
        "--min_short_seq_length has no effect with --short_seq_prob=0",
    ),
    (Mlm, {"use_position_id": True}, "--use_position_id has no effect without --packing"),
    (Mlm, {"packing": "tight"}, "--packing must be one of"),
    *(
        (Mlm, {"packing": "concat", name: value}, f"--{name} has no effect with --packing=concat")
        for name, value in (
            ("overlap_size", 3), ("min_short_seq_length", 50), ("short_seq_prob", 0.2),
            ("allow_cross_document_examples", True),
        )
    ),
    (MlmTokens, {"overlap_size": 64}, r"--overlap_size must be in \[0, 63\] .* got 64"),
    (MlmTokens, {"record_type": "rows"}, "--record_type must be one of"),
    (MlmTokens, {"dupe_factor": 2}, "--dupe_factor must be 1 for --task=mlm_tokens, which is"),
    (Classify, {"dupe_factor": 2}, "--dupe_factor must be 1 for --task=classify, which writes"),
    (Gpt, {"format": "mlm"}, "--format must be one of"),
    (Gpt, {"pad_id": -1}, "--pad_id must be from 0 to 2147483647, got -1"),
    (Gpt, {"eos_id": 1 << 31}, "--eos_id must be from 0 to 2147483647, got 2147483648"),
    (Gpt, {"fim_rate": 1.5}, r"--fim_rate must be in \[0, 1\], got 1\.5"),
    (Gpt, {"fim_rate": 0.5, "fim_spm_rate": -0.1}, r"--fim_spm_rate must be in \[0, 1\], got -0"),
    (Gpt, {"fim_spm_rate": 0.1}, "--fim_spm_rate has no effect without --fim_rate"),
    (Gpt, {"format": "maxtext", "use_segment_ids": True}, "--use_segment_ids has no effect with"),
    (Gpt, {"format": "seqio", "use_position_id": True}, "--use_position_id has no effect with"),
    (Gpt, {"format": "seqio", "pad_id": 0}, "--pad_id has no effect with --format=seqio"),
    (
        Gpt,
        {"format": "seqio", "loss_mask": True, "prompts": True},
        "--loss_mask needs --format=cerebras or maxtext",
    ),
    (Gpt, {"loss_mask": True}, "--loss_mask has no effect without --prompt_field"),
    (
        Gpt,
        {"fim_rate": 0.5, "loss_mask": True, "prompts": True},
        "--fim_rate moves parts of documents, and --loss_mask needs them in their order",
    ),
    (Gpt, {"dupe_factor": 2}, "--dupe_factor must be 1 for --task=gpt, which has no draws"),
    (T5, {"max_seq_length": 4}, r"--max_seq_length must be in \[8, 32767\] for span corruption"),
    (T5, {"noise_density": 1.0}, r"--noise_density must be in \(0, 1\), got 1"),
    (T5, {"mean_noise_span_length": 0.5}, "--mean_noise_span_length must be in"),
    (T5, {"format": "maxtext"}, "--format must be one of"),
    (T5, {"pad_id": 0}, "--pad_id has no effect with --format=seqio"),
    (T5, {"decoder_start_id": 0}, "--decoder_start_id has no effect without --format=cerebras"),
    (T5Tokens, {"dupe_factor": 2}, "--dupe_factor must be 1 for --task=t5_tokens, which is corr"),
    (Ul2, {"denoisers": "1:2"}, "--denoisers must be DENSITY:SPAN:SHARE,…, such as .*, got 1:2"),
    (Ul2, {"denoisers": "0.1:3:0"}, "the share of a denoiser must be above 0"),
    (Ul2, {"denoisers": ","}, "--denoisers must name one denoiser or more, got none"),
    (Ul2, {"mode_tokens": "a,b"}, "--mode_tokens must be three tokens"),
    (CleanSpec, {"normalize": "nfd"}, "--normalize must be one of"),
    (CleanSpec, {"deduplicate": "all"}, "--deduplicate must be one of"),
    (CleanSpec, {"min_tokens": -1}, "--min_tokens must be at least 0, got -1"),
    (
        CleanSpec,
        {"min_tokens": 5, "max_tokens": 4},
        "--max_tokens must be at least 1 and not below --min_tokens, got 4 with --min_tokens=5",
    ),
    (CleanSpec, {"max_tokens": 0}, "--max_tokens must be at least 1 and not below"),
    (
        CleanSpec,
        {"deduplicate": "near", "near_threshold": 0.05},
        r"--near_threshold must be in \[0.1, 1\], got 0.05",
    ),
    (
        CleanSpec,
        {"deduplicate": "exact", "near_threshold": 0.9},
        "--near_threshold has no effect without --deduplicate=near",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "message"), REFUSED)
def test_wrong_options(kind: type[Any], options: dict[str, Any], message: str) -> None:
    with naming_flags(), pytest.raises(UsageError, match=f"^{message}"):
        kind(**options)
    with pytest.raises(UsageError) as raised:  # of Python's users
        kind(**options)
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "row_tokens", "padded_length", "packed_tokens", "splitter"),
    [
        (Bert(max_seq_length=64), 64, 64, None, "auto"),
        (Bert(sentence_splitter="none"), 128, 128, None, "none"),
        (Mlm(max_seq_length=64), 64, 64, None, "none"),
        (Mlm(packing="concat"), 128, 128, 128, "none"),
        (MlmTokens(), 128, None, None, "none"),
        (Classify(), 128, 128, None, "none"),
        (Gpt(), 129, 129, 129, "whole"),
        (Gpt(packing="none"), 129, 129, None, "whole"),
        (Gpt(use_segment_ids=True), 128, 128, 128, "whole"),
        (Gpt(format="maxtext"), 128, 128, 128, "whole"),
        (Gpt(format="seqio"), 128, None, 128, "whole"),
        (T5(max_seq_length=512), 568, None, None, "whole"),
        (T5(max_seq_length=512, format="cerebras", packing="concat"), 568, 568, 568, "whole"),
        (T5Tokens(max_seq_length=512, packing="best_fit"), 568, None, 568, "whole"),
        (Ul2(max_seq_length=512), 568, None, None, "whole"),
    ],
)
def test_lengths(
    spec: AnyObjective,
    row_tokens: int,
    padded_length: int | None,
    packed_tokens: int | None,
    splitter: str,
) -> None:
    found = spec.row_tokens, spec.padded_length, spec.packed_tokens, spec.splitter
    assert found == (row_tokens, padded_length, packed_tokens, splitter)


def test_second_segments() -> None:
    assert Bert().second_segment == "next"
    assert Bert(sentence_order=True).second_segment == "order"
    assert Bert(no_nsp=True).second_segment == "none"


@pytest.mark.parametrize(
    ("spec", "overlap", "least_tokens"),
    [
        (Mlm(), 32, 34),
        (Mlm(max_seq_length=64, overlap_size=5), 5, 7),
        (MlmTokens(max_seq_length=64), 16, 18),
        (MlmTokens(overlap_size=0, min_short_seq_length=1), 0, 1),
    ],
)
def test_windows(spec: Mlm | MlmTokens, overlap: int, least_tokens: int) -> None:
    assert (spec.overlap, spec.least_tokens) == (overlap, least_tokens)


@pytest.mark.parametrize(
    ("spec", "labels_cross", "with_spans"),
    [
        (Gpt(), True, False),
        (Gpt(use_position_id=True), True, True),
        (Gpt(use_segment_ids=True), False, True),
        (Gpt(loss_mask=True, prompts=True), True, True),
        (Gpt(format="maxtext"), False, True),
        (Gpt(format="seqio"), False, False),
    ],
)
def test_rows_of_gpt(spec: Gpt, labels_cross: bool, with_spans: bool) -> None:
    assert (spec.labels_cross, spec.with_spans) == (labels_cross, with_spans)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Bert(), "keep_fields has no meaning for --task=bert"),
        (Mlm(allow_cross_document_examples=True), "--allow_cross_document_examples, where a rec"),
        (Mlm(packing="concat"), "keep_fields has no meaning with --packing=concat"),
        (MlmTokens(), "keep_fields needs --record_type=example for --task=mlm_tokens"),
        (Gpt(), "keep_fields has no meaning with --packing=best_fit"),
        (T5(packing="best_fit"), "keep_fields has no meaning with --packing=best_fit"),
        (Mlm(), ""),
        (MlmTokens(record_type="example"), ""),
        (Classify(), ""),
        (Gpt(packing="none"), ""),
        (T5Tokens(), ""),
        (Ul2(), ""),
    ],
)
def test_kept_fields(spec: AnyObjective, message: str) -> None:
    if not message:
        spec.check_kept_fields()
        return
    with pytest.raises(UsageError, match=message):
        spec.check_kept_fields()


def test_lists_need_drops() -> None:
    lists = CleanSpec(list_dropped=True)
    lists.check_lists(maps=True)
    CleanSpec(list_dropped=True, min_tokens=1).check_lists(maps=False)
    with pytest.raises(UsageError, match="--list_dropped has no effect where no document is drop"):
        lists.check_lists(maps=False)


def test_corruption_is_found_once() -> None:
    assert T5().corruption is T5(packing="concat").corruption
    assert T5(max_seq_length=512).corruption.targets_length == 114  # of T5's own pretraining
    assert Ul2(mode_tokens="a, b,c").corruption.mode_tokens == ("a", "b", "c")


def test_what_is_written_of_a_spec() -> None:
    assert plain(Bert(), fingerprint=True) == {"name": "bert"}
    assert plain(Gpt(fim_rate=0.5), fingerprint=True) == {"name": "gpt", "fim_rate": 0.5}
    assert plain(CleanSpec(), fingerprint=True) == {}
    assert plain(MlmTokens()) == {
        "name": "mlm_tokens", "max_seq_length": 128, "dupe_factor": 1, "short_seq_prob": 0.1,
        "overlap_size": None, "min_short_seq_length": None,
        "allow_cross_document_examples": False, "record_type": "sequence_example",
    }  # fmt: skip


def test_specs_are_given_by_name_and_travel() -> None:
    options: tuple[Any, ...] = ("nfc", 1, 5)
    with pytest.raises(TypeError, match="positional"):
        CleanSpec(*options)
    spec = Mlm(packing="concat", max_seq_length=64)
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(UsageError, match="max_predictions_per_seq must be below"):
        replace(spec, max_seq_length=16, max_predictions_per_seq=16)


def test_nothing_heavy_is_imported() -> None:
    heavy = ("numpy", "numba", "pyarrow", "apache_beam", "tensorflow")
    code = (
        "import sys\nimport recordmill.transforms.text.text_spec\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(("length", "most"), [(8, 7), (16, 15), (20, 19), (21, 20), (512, 20)])
def test_a_short_example_has_fewer_predictions_by_default(length: int, most: int) -> None:
    assert Bert(max_seq_length=length).most_predictions == most
    assert Mlm(max_seq_length=length).most_predictions == most


def test_predictions_by_default_follow_the_length_and_given_ones_stay() -> None:
    spec = Mlm(max_seq_length=16)
    assert spec.given() == {"max_seq_length": 16}
    assert replace(spec, max_seq_length=512).most_predictions == 20
    assert replace(spec, max_seq_length=12).most_predictions == 11
    with pytest.raises(UsageError, match=r"max_predictions_per_seq must be below .*=16, got 20"):
        replace(spec, max_predictions_per_seq=20)
