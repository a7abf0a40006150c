"""Rows of tokens as text: what masks hide, segments, packed documents, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from recordmill.pipelines.inspection.spellings import BYTES, PIECES, WORD_PIECES, spell_alone
from recordmill.pipelines.inspection.styles import Style
from recordmill.pipelines.inspection.token_form import TokenForm, form_of
from recordmill.pipelines.inspection.token_lines import (
    find_spans,
    legend_lines,
    token_features,
    token_lines,
)
from recordmill.records.manifest import Manifest

VOCABULARY = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "sat",
    "##ting",
    "dog",
    "on",
    "mat",
]


def row(*tokens: str, length: int = 16) -> Any:
    ids = [VOCABULARY.index(token) for token in tokens]
    return np.array(ids + [0] * (length - len(ids)))


def shown(
    values: dict[str, Any],
    *,
    colors: bool = False,
    words: bool = True,
    form: TokenForm | None = None,
) -> list[str]:
    vocabulary = VOCABULARY if words else None
    form = form or TokenForm()
    return [
        f"{heading}: {text}"
        for name in token_features(values, form)
        for heading, text in token_lines(values, name, vocabulary, Style(colors), form)
    ]


PAIR = {
    "input_ids": row("[CLS]", "the", "[MASK]", "dog", "[SEP]", "on", "the", "mat", "[SEP]"),
    "segment_ids": np.array([0] * 5 + [1] * 4 + [0] * 7),
    "input_mask": np.array([1] * 9 + [0] * 7),
    "masked_lm_positions": np.array([2, 3, 7, 0]),
    "masked_lm_ids": np.array([5, 6, 10, 0]),
    "masked_lm_weights": np.array([1.0, 1.0, 1.0, 0.0], np.float32),
}


def test_masks_segments_and_padding() -> None:
    assert shown(PAIR) == [
        "input_ids 0: [CLS] the [MASK→cat] [dog→sat] [SEP]",
        "input_ids 1: on the [mat] [SEP]",
        ": …7",
    ]


def test_colors_only_mark() -> None:
    colored = "\n".join(shown(PAIR, colors=True))
    assert "\x1b[1;33m[MASK→cat]\x1b[0m" in colored
    assert "\x1b[1;31m[dog→sat]\x1b[0m" in colored
    assert "\x1b[1;32m[mat]\x1b[0m" in colored


def test_ids_without_a_vocabulary() -> None:
    assert shown(PAIR, words=False)[0] == "input_ids 0: 1 4 [3→5] [8→6] 2"


def test_word_pieces_are_joined() -> None:
    assert shown({"input_ids": row("the", "sat", "##ting", "cat")})[0] == (
        "input_ids: the satting cat"
    )
    tokens = {"tokens": [b"[CLS]", b"sat", b"##ting", b"[SEP]"]}
    assert shown(tokens) == ["tokens: [CLS] satting [SEP]"]


def test_documents_of_a_packed_row() -> None:
    packed = {
        "targets": row("the", "cat", "sat", "the", "dog", "on"),
        "targets_segmentation": np.array([1, 1, 1, 2, 2, 3] + [0] * 10),
    }
    assert shown(packed) == [
        "targets 1: the cat sat", "targets 2: the dog", "targets 3: on", ": …10",
    ]  # fmt: skip


def test_a_few_labels_are_no_tokens() -> None:
    assert token_features({"labels": np.array([3, 4])}) == []


SPANS = {
    "inputs": np.array([4, 5, 99, 9, 98, 1]),  # the cat <0> on <1> [CLS]
    "targets": np.array([99, 6, 7, 98, 4, 10, 97, 1]),  # <0> sat ##ting <1> the mat <2> [CLS]
}


def test_sentinels_of_t5_show_what_they_stand_for() -> None:
    assert shown(SPANS) == [
        "inputs: the cat [<0>→satting] on [<1>→the mat] [CLS]",
        "targets: <0> satting <1> the mat <2> [CLS]",
    ]
    assert shown(SPANS, words=False)[0] == "inputs: 4 5 [<0>→6 7] 9 [<1>→4 10] 1"
    assert "\x1b[1;33m[<0>→satting]\x1b[0m" in shown(SPANS, colors=True)[0]


def test_sentinels_may_count_up_and_rows_may_have_none() -> None:
    up = {"inputs": np.array([4, 50, 9, 51]), "targets": np.array([50, 6, 51, 10, 52])}
    assert find_spans(up) == {50: [6], 51: [10], 52: []}
    assert find_spans(SPANS) == {99: [6, 7], 98: [4, 10], 97: []}
    for other in (
        {"inputs": np.array([4, 5, 6]), "targets": np.array([7, 8, 9])},
        {"inputs": np.array([4, 5, 6]), "targets": np.array([4, 5, 6])},  # shifted by nothing
        {"inputs": np.array([98, 4, 99]), "targets": np.array([99, 6, 98, 7])},  # another order
        {"inputs": [b"a"], "targets": [b"b"]},
        {"inputs": np.array([4])},
    ):
        assert find_spans(other) == {}, other


def written_with(config: dict[str, Any]) -> Manifest:
    return Manifest("ds", config, "", [], "", {}, {}, {}, {})


def corrupted_form(task: str = "t5", **options: object) -> TokenForm:
    """Of a dataset that T5's job wrote with `VOCABULARY`: sentinels descend from 110."""
    config: dict[str, Any] = {
        "objective": {"name": task, "format": "seqio", **options},
        "vocabulary_size": len(VOCABULARY),
    }
    return form_of(written_with(config), VOCABULARY)


def test_rows_with_one_sentinel_or_none_are_decoded() -> None:
    """Nothing in such a row tells a sentinel from a token: the configuration does."""
    form = corrupted_form()
    one = {"inputs": np.array([4, 5, 110, 2]), "targets": np.array([110, 6, 7, 2])}
    assert shown(one, form=form) == [
        "inputs: the cat [<0>→satting] [SEP]", "targets: <0> satting [SEP]",
    ]  # fmt: skip
    assert shown(one, form=form, words=False) == [
        "inputs: 4 5 [<0>→6 7] 2", "targets: <0> 6 7 2",
    ]  # fmt: skip
    none = {"inputs": np.array([5, 2]), "targets": np.array([110, 2])}
    assert shown(none, form=form) == ["inputs: cat [SEP]", "targets: <0> [SEP]"]
    assert find_spans(none, form) == {110: []}
    assert shown(none) == []  # of files of another tool


def test_sentinels_are_those_of_the_configuration() -> None:
    values = {"inputs": np.array([4, 50, 2]), "targets": np.array([50, 6, 49, 9, 2])}
    form = corrupted_form("ul2", first_sentinel_id=50)
    assert find_spans(values, form) == {50: [6], 49: [9]}
    config = {"objective": {"name": "t5", "format": "seqio"}, "vocabulary_size": 4}
    manifest = written_with(config)
    named = form_of(manifest, ["a", "<extra_id_1>", "b", "<extra_id_0>"])
    assert named.sentinels == (3, 1)
    assert form_of(manifest, None).sentinels[:2] == (103, 102)


def test_sentinels_of_cerebras_form() -> None:
    pad = VOCABULARY.index("[PAD]")
    values = {
        "encoder_input_ids": np.array([4, 5, 110, pad]),
        "encoder_mask": np.array([0, 0, 0, 1]),
        "decoder_input_ids": np.array([0, 110, 6, 7, pad]),
        "decoder_mask": np.array([0, 0, 0, 0, 1]),
        "labels": np.array([110, 6, 7, 2, pad]),
    }
    assert shown(values, form=corrupted_form(format="cerebras")) == [
        "labels: <0> satting [SEP]", ": …1", "encoder_input_ids: the cat [<0>→satting]", ": …1",
        "decoder_input_ids: [PAD] <0> satting", ": …1",
    ]  # fmt: skip


def test_kept_fields_and_labels_of_classes_are_no_tokens() -> None:
    config = {
        "objective": {"name": "classify"},
        "documents": {"row": {"keep_fields": [{"name": "tokens", "kind": "bytes"}]}},
    }
    form = form_of(written_with(config), None)
    values = {"input_ids": np.array([4, 5]), "labels": np.array([1]), "tokens": [b"x"]}
    assert token_features(values, form) == ["input_ids"]


def test_pieces_stay_visible_beside_marks() -> None:
    """Nobody could tell "[MASK→sat]ting" from a word "ting"."""
    values = {
        "input_ids": row("[CLS]", "##ting", "the", "[MASK]", "##ting", "cat", "##ting"),
        "masked_lm_positions": np.array([3, 6]),
        "masked_lm_ids": np.array([6, 7]),
    }
    assert shown(values)[0] == "input_ids: [CLS] ##ting the [MASK→sat] ##ting cat [##ting]"


def test_spans_of_other_tokenizers_continue_words() -> None:
    pieces = ["<pad>", "▁the", "▁ca", "ts", "</s>"]
    form = TokenForm(True, True, ("inputs", "targets"), (9, 8))
    values = {"inputs": np.array([1, 2, 9, 1, 8, 4]), "targets": np.array([9, 3, 8, 2, 4])}
    lines = token_lines(values, "inputs", pieces, Style(False), form)
    assert [text for _, text in lines] == ["the ca[<0>→ts] the [<1>→ca] </s>"]


def test_legend_says_what_is_shown() -> None:
    with_words, without = (legend_lines([PAIR], v) for v in (VOCABULARY, None))
    assert with_words[0].startswith("[MASK→word]")
    assert "##x" in with_words[1]
    assert without[0].startswith("[id→hidden]")
    assert "MASK" not in " ".join(without)
    assert legend_lines([{"input_ids": row("the")}], VOCABULARY) == []


def test_labels_of_causal_rows_are_told_in_words() -> None:
    ids = row("the", "cat", "sat", "on", "the", "mat")
    labels = np.append(ids[1:], 0)
    mask = np.array([0, 0, 1, 1, 1, 1] + [0] * 10)  # of the loss: not of the prompt
    lines = shown({"input_ids": ids, "labels": labels, "input_mask": mask})
    assert lines == ["input_ids: the cat sat on the mat", ": …10",
                     "labels: the next token, at 4 of 16 positions"]  # fmt: skip
    others = shown({"input_ids": ids, "labels": ids})
    assert others[2] == "labels: the cat sat on the mat"


def test_documents_begin_where_positions_do() -> None:
    packed = {
        "input_ids": row("the", "cat", "the", "dog", "sat"),
        "position_ids": np.array([0, 1, 0, 1, 2, *range(3, 14)]),
    }
    assert shown(packed) == ["input_ids 1: the cat", "input_ids 2: the dog sat", ": …11"]


def test_tokens_of_other_tokenizers_make_words() -> None:
    vocabulary = ["<pad>", "Ġthe", "Ġca", "ts", ".", "<|endoftext|>", "Ċ"]
    ids = {"input_ids": np.array([1, 2, 3, 4, 5, 1, 6] + [0] * 9)}
    lines = list(token_lines(ids, "input_ids", vocabulary, Style(colors=False)))
    assert lines[0] == ("input_ids", "the cats. <|endoftext|> the⏎")
    pieces = [text.replace("Ġ", "▁") for text in vocabulary]
    lines = list(token_lines(ids, "input_ids", pieces, Style(colors=False)))
    assert lines[0][1].startswith("the cats.")


def told(tokens: list[str], vocabulary: list[str]) -> str:
    ids = np.array([vocabulary.index(token) for token in tokens] + [0] * 20)
    return next(iter(token_lines({"input_ids": ids}, "input_ids", vocabulary, Style(False))))[1]


def test_bytes_are_joined_before_they_are_decoded() -> None:
    """A character of two tokens, one whose last byte is missing, and one that a terminal obeys."""
    octets = [
        "<pad>",
        "Ġna",
        "Ã¯",
        "ve",
        "Ġ",
        "Ġæ°",
        "´",
        "è",
        "<|endoftext|>",
        "Ä§",
        "Ġx",
        "\u011b",
    ]
    assert told(octets[1:4], octets) == "naïve"
    assert told(["Ġæ°", "´", "Ġna"], octets) == "水 na"
    assert told(["Ġx", "è", "<|endoftext|>", "Ġæ°"], octets) == "x\ufffd <|endoftext|> \ufffd"
    assert told(["Ġx", "è", "Ġna"], octets) == "x\ufffd na"
    assert told(["Ġx", "\u011b"], octets) == "x\\u001b"
    assert told(["Ġna", "Ġ", "Ġx"], octets) == "na  x"


def test_bytes_of_sentence_pieces_are_joined() -> None:
    pieces = ["<pad>", "▁the", "▁", "<0xE6>", "<0xB0>", "<0xB4>", "s", "Ġ", "</s>"]
    assert told(["▁the", "▁", "<0xE6>", "<0xB0>", "<0xB4>", "s", "</s>"], pieces) == "the 水s </s>"
    assert told(["▁the", "<0xE6>", "Ġ"], pieces) == "the\ufffdĠ"


def test_tokens_alone() -> None:
    assert [spell_alone(token, BYTES) for token in ("Ġthe", "æ°´", "æ", "Ċ", "<|endoftext|>")] == [
        "␣the", "水", "æ", "⏎", "<|endoftext|>",
    ]  # fmt: skip
    assert spell_alone("▁the", PIECES) == "␣the"
    assert spell_alone("##s", WORD_PIECES) == "##s"


def test_rows_of_causal_models_end_behind_their_last_label() -> None:
    """Whatever the padding is: GPT-2's is the end of text, and no 0."""
    pad = VOCABULARY.index("[SEP]")
    ids = np.array([4, 5, 6, *[pad] * 13])
    labels = np.array([5, 6, *[pad] * 14])
    mask = np.array([1, 1] + [0] * 14)
    assert shown({"input_ids": ids, "input_mask": mask, "labels": labels}) == [
        "input_ids: the cat sat", ": …13", "labels: the next token, at 2 of 16 positions",
    ]  # fmt: skip


def test_rows_of_cerebras_t5_end_where_their_masks_begin() -> None:
    pad = VOCABULARY.index("[SEP]")
    values = {
        "encoder_input_ids": np.array([4, 5, *[pad] * 14]),
        "encoder_mask": np.array([0, 0] + [1] * 14),
        "decoder_input_ids": np.array([0, 6, 9, *[pad] * 13]),
        "decoder_mask": np.array([0] * 3 + [1] * 13),
        "labels": np.array([6, 9, pad, *[pad] * 13]),
    }
    assert shown(values) == [
        "labels: sat on [SEP]", ": …13", "encoder_input_ids: the cat", ": …14",
        "decoder_input_ids: [PAD] sat on", ": …13",
    ]  # fmt: skip
