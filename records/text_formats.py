"""The record formats that recordmill writes, each as a `Schema`.

Names and shapes are those of google-research/bert's create_pretraining_data.py, which Model Garden
and Cerebras Model Zoo read too. `input_mask` is 1 on tokens and 0 on padding; label 1 of
`next_sentence_labels` is a random second segment.
"""

from dataclasses import replace

from recordmill.records.schema import Feature, Schema

V2_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
_SEGMENTS = "1, 2, … by document, 0 on padding"
_POSITIONS = "0, 1, … from the beginning of each document"


def _masked(length: int, predictions: int) -> list[Feature]:
    return [
        Feature("input_ids", "int64", (length,), "token ids after masking, padded with 0"),
        Feature("input_mask", "int64", (length,), "1 on tokens, 0 on padding"),
        Feature("masked_lm_positions", "int64", (predictions,), "masked positions, ascending"),
        Feature("masked_lm_ids", "int64", (predictions,), "ids before masking"),
        Feature("masked_lm_weights", "float32", (predictions,), "1.0 on predictions, 0.0 padding"),
    ]


def bert(
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    use_v2_feature_names: bool = False,
    use_position_id: bool = False,
    second_segment: str = "next",
) -> Schema:
    """Returns the schema of BERT pretraining: masked sentence pairs with a next-sentence label.

    Args:
      max_seq_length, max_predictions_per_seq: of every example.
      use_v2_feature_names: the names of Model Garden's second version.
      use_position_id: with position_ids.
      second_segment: "next" or random, the "order" of both is to be told, or neither: "none".
    """
    features = _masked(max_seq_length, max_predictions_per_seq)
    segments = Feature("segment_ids", "int64", (max_seq_length,), "0 on first segment, 1 on second")
    features.append(segments)
    meanings = {
        "next": "1 where the second segment is random",
        "order": "1 where the segments are swapped",
    }
    if second_segment in meanings:
        label = Feature("next_sentence_labels", "int64", (1,), meanings[second_segment])
        features.append(label)
    if use_position_id:
        features.append(Feature("position_ids", "int64", (max_seq_length,), "0, 1, 2, …"))
    return Schema(tuple(_v2_named(features) if use_v2_feature_names else features))


def mlm(
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    use_v2_feature_names: bool = False,
    use_segment_ids: bool = False,
    use_position_id: bool = False,
    packed: bool = False,
) -> Schema:
    """Returns the schema of masked language modelling.

    Args:
      max_seq_length, max_predictions_per_seq: of every example.
      use_v2_feature_names: the names of Model Garden's second version.
      use_segment_ids: with segment_ids: 0 for one segment, or by document where rows are packed.
      use_position_id: with position_ids, of packed rows.
      packed: a row may hold several documents.
    """
    features = _masked(max_seq_length, max_predictions_per_seq)
    if use_segment_ids:
        meaning = _SEGMENTS if packed else "0, for one segment"
        features.append(Feature("segment_ids", "int64", (max_seq_length,), meaning))
    if use_position_id:
        features.append(Feature("position_ids", "int64", (max_seq_length,), _POSITIONS))
    return Schema(tuple(_v2_named(features) if use_v2_feature_names else features))


def classify(
    *,
    max_seq_length: int,
    classes: tuple[str, ...] = (),
    is_number: bool = False,
    use_v2_feature_names: bool = False,
) -> Schema:
    """Returns the schema of text classification, that of google-research/bert's run_classifier.

    Args:
      max_seq_length: of every example.
      classes: the names of class 0, 1, …
      is_number: the label is a number to be predicted, a float.
      use_v2_feature_names: the names of Model Garden's second version.
    """
    length = (max_seq_length,)
    label = Feature("label_ids", "int64", (), "the class", kind="classes", classes=classes)
    if is_number:
        label = Feature("label_ids", "float32", (), "the number to be predicted")
    features = [
        Feature("input_ids", "int64", length, "token ids, padded with 0"),
        Feature("input_mask", "int64", length, "1 on tokens, 0 on padding"),
        Feature("segment_ids", "int64", length, "0 on first text, 1 on second"),
        Feature("is_real_example", "int64", (), "1, which run_classifier's reader asks for"),
        label,
    ]
    return Schema(tuple(_v2_named(features) if use_v2_feature_names else features))


def _v2_named(features: list[Feature]) -> list[Feature]:
    return [replace(feature, name=V2_NAMES.get(feature.name, feature.name)) for feature in features]


def mlm_tokens(*, record_type: str = "sequence_example") -> Schema:
    """Returns the schema of unmasked word pieces, for masking while reading.

    Args:
      record_type: "sequence_example" or "example". Cerebras reads SequenceExamples, TFDS Examples.
    """
    meaning = "word pieces with [CLS] and [SEP], not padded"
    if record_type == "example":
        return Schema((Feature("tokens", "bytes", (None,), meaning, kind="text"),))
    return Schema((Feature("tokens", "bytes", (None,), meaning, sequence=True),))


def causal(
    *,
    max_seq_length: int,
    form: str = "cerebras",
    use_segment_ids: bool = False,
    use_position_id: bool = False,
    loss_mask: bool = False,
) -> Schema:
    """Returns the schema of causal language modelling.

    Args:
      max_seq_length: of every example.
      form: "cerebras" is what GptTfRecordsProcessor reads, "maxtext" packed
        rows with segments and positions, "seqio" tokens alone, not padded.
      use_segment_ids, use_position_id: of "cerebras", with segment_ids and position_ids.
      loss_mask: prompts have no labels.
    """
    length = (max_seq_length,)
    if form == "seqio":
        return Schema((Feature("targets", "int64", (None,), "token ids, not padded"),))
    if form == "maxtext":
        parts = [
            Feature("inputs", "int64", length, "token ids, padded"),
            Feature("targets", "int64", length, "the next token of each, padded"),
        ]
        for name in ("inputs", "targets"):
            parts.append(Feature(f"{name}_segmentation", "int64", length, _SEGMENTS))
            parts.append(Feature(f"{name}_position", "int64", length, _POSITIONS))
        return Schema(tuple(parts))
    labelled = "1 on labels of answers, 0 on others" if loss_mask else "1 on labels, 0 on others"
    features = [
        Feature("input_ids", "int64", length, "token ids, padded"),
        Feature("input_mask", "int64", length, labelled),
        Feature("labels", "int64", length, "the next token of each, padded"),
    ]
    if use_segment_ids:
        features.append(Feature("segment_ids", "int64", length, _SEGMENTS))
    if use_position_id:
        features.append(Feature("position_ids", "int64", length, _POSITIONS))
    return Schema(tuple(features))


def corrupted(*, inputs_length: int, targets_length: int, form: str = "seqio") -> Schema:
    """Returns the schema of span corruption.

    Args:
      inputs_length, targets_length: of every example of "cerebras"; the most of "seqio".
      form: "seqio" or "cerebras". "seqio" has inputs and targets with their ends, not padded;
        "cerebras" what T5DynamicDataProcessor gives to its model.
    """
    if form == "seqio":
        return Schema(
            (
                Feature("inputs", "int64", (None,), "token ids with sentinels and end, not padded"),
                Feature("targets", "int64", (None,), "what sentinels hide, and end, not padded"),
            )
        )
    inputs, targets = (inputs_length,), (targets_length,)
    return Schema(
        (
            Feature("encoder_input_ids", "int64", inputs, "token ids with sentinels, padded"),
            Feature("encoder_mask", "int64", inputs, "1 on padding, 0 on tokens"),
            Feature("encoder_input_length", "int64", (), "tokens of the input"),
            Feature("decoder_input_ids", "int64", targets, "start, then labels but the last"),
            Feature("decoder_mask", "int64", targets, "1 on padding, 0 on tokens"),
            Feature("decoder_input_length", "int64", (), "tokens of the target"),
            Feature("labels", "int64", targets, "what sentinels hide, and end, padded"),
            Feature("loss_scale", "float32", targets, "1 / tokens of the target"),
        )
    )


def corruption_tokens() -> Schema:
    """Returns the schema of unmasked rows, for span corruption while reading."""
    return Schema((Feature("targets", "int64", (None,), "token ids, not padded"),))
