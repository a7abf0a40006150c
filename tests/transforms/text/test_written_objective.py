"""The objective of a manifest, as this release writes it and as earlier ones did."""

from __future__ import annotations

from typing import Any

import pytest

from recordmill.records.spec import plain
from recordmill.transforms.text.text_spec import Bert
from recordmill.transforms.text.written_objective import objective_options, readable_config

OLD: dict[str, Any] = {
    "name": "mlm",
    "copies": 10,
    "pair": {"max_seq_length": 128, "short_seq_prob": 0.1},
    "mask": {
        "masked_lm_prob": 0.2, "max_predictions_per_seq": 20, "whole_word": True,
        "max_ngram_size": 1, "replace_words": False,
    },
    "window": {
        "max_seq_length": 64, "overlap_size": 5, "short_seq_prob": 0.1,
        "min_short_seq_length": 7, "cross_documents": True,
    },
    "use_v2_feature_names": False,
    "use_position_id": False,
    "use_segment_ids": False,
}  # fmt: skip
LANGUAGE: dict[str, Any] = {
    "causal": {
        "max_seq_length": 256, "form": "cerebras", "fim": {"rate": 0.5, "spm_rate": 0.25},
        "loss_mask": False, "use_segment_ids": False, "use_position_id": False,
    },
    "corruption": {
        "inputs_length": 512,
        "denoisers": [
            {"density": 0.15, "mean_span_length": 3.0, "share": 0.5},
            {"density": 0.5, "mean_span_length": 32.0, "share": 0.5},
        ],
        "mode_tokens": ["1", "2", "3"],
    },
    "form": "seqio", "pad_id": None, "end_id": 3, "first_sentinel_id": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("written", "options"),
    [
        (
            OLD,
            {
                "name": "mlm", "max_seq_length": 64, "dupe_factor": 10, "masked_lm_prob": 0.2,
                "max_predictions_per_seq": 20, "do_whole_word_mask": True, "max_ngram_size": 1,
                "replacement": "per_token", "overlap_size": 5, "short_seq_prob": 0.1,
                "min_short_seq_length": 7, "allow_cross_document_examples": True,
                "use_v2_feature_names": False, "use_position_id": False, "use_segment_ids": False,
            },
        ),
        (
            OLD | {"name": "bert", "pair": {"max_seq_length": 32, "second_segment": "order"}},
            {
                "name": "bert", "max_seq_length": 32, "dupe_factor": 10, "masked_lm_prob": 0.2,
                "max_predictions_per_seq": 20, "do_whole_word_mask": True, "max_ngram_size": 1,
                "replacement": "per_token", "sentence_order": True, "no_nsp": False,
                "use_v2_feature_names": False, "use_position_id": False,
            },
        ),
        (
            OLD | {"name": "gpt", "copies": 1, "packing": "best_fit", "language": LANGUAGE},
            {
                "name": "gpt", "max_seq_length": 256, "dupe_factor": 1, "packing": "best_fit",
                "format": "cerebras", "fim_rate": 0.5, "fim_spm_rate": 0.25, "loss_mask": False,
                "use_segment_ids": False, "use_position_id": False, "pad_id": None, "eos_id": 3,
            },
        ),
        (
            OLD | {"name": "ul2", "language": LANGUAGE},
            {
                "name": "ul2", "max_seq_length": 512, "dupe_factor": 10, "format": "seqio",
                "denoisers": "0.15:3:0.5,0.5:32:0.5", "mode_tokens": "1,2,3", "pad_id": None,
                "eos_id": 3, "first_sentinel_id": None,
            },
        ),
        (
            OLD | {"name": "t5_tokens", "copies": 1, "language": LANGUAGE},
            {
                "name": "t5_tokens", "max_seq_length": 512, "dupe_factor": 1, "eos_id": 3,
                "noise_density": 0.15, "mean_noise_span_length": 3.0,
            },
        ),
        ({"name": "bert", "max_seq_length": 32}, {"name": "bert", "max_seq_length": 32}),
        ({"name": "unknown", "copies": 3}, {"name": "unknown", "copies": 3}),
    ],
)  # fmt: skip
def test_options_have_the_names_of_this_release(
    written: dict[str, Any], options: dict[str, Any]
) -> None:
    assert objective_options({"objective": written}) == options
    assert readable_config({"objective": written, "seed": 1}) == {"objective": options, "seed": 1}


def test_what_is_written_now_stays_as_it_is() -> None:
    written = plain(Bert(masked_lm_prob=0.2))
    assert (written["name"], written["masked_lm_prob"]) == ("bert", 0.2)
    assert objective_options({"objective": written}) == written


@pytest.mark.parametrize("config", [{}, {"objective": "none"}, {"images": {}}])
def test_other_jobs_have_none(config: dict[str, Any]) -> None:
    assert objective_options(config) == {}
    assert readable_config(config) == config
