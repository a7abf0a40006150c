"""The record formats that recordmill writes, each as a `Schema`.

Names and shapes are those of google-research/bert's create_pretraining_data.py, which Model Garden
and Cerebras Model Zoo read too. `input_mask` is 1 on tokens and 0 on padding; label 1 of
`next_sentence_labels` is a random second segment.
"""

from dataclasses import replace

from recordmill.records.schema import Feature, Schema

RECORD_TYPES = ("sequence_example", "example")
V2_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


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
) -> Schema:
    """Returns the schema of BERT pretraining: masked sentence pairs with a next-sentence label."""
    features = _masked(max_seq_length, max_predictions_per_seq)
    features += [
        Feature("segment_ids", "int64", (max_seq_length,), "0 on first segment, 1 on second"),
        Feature("next_sentence_labels", "int64", (1,), "1 where the second segment is random"),
    ]
    if use_position_id:
        features.append(Feature("position_ids", "int64", (max_seq_length,), "0, 1, 2, …"))
    return Schema(tuple(_v2_named(features) if use_v2_feature_names else features))


def mlm(
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    use_v2_feature_names: bool = False,
    use_segment_ids: bool = False,
) -> Schema:
    """Returns the schema of masked language modelling, without segments or with one alone."""
    features = _masked(max_seq_length, max_predictions_per_seq)
    if use_segment_ids:
        features.append(Feature("segment_ids", "int64", (max_seq_length,), "0, for one segment"))
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
      record_type: one of RECORD_TYPES. Cerebras reads SequenceExamples, TFDS Examples.
    """
    meaning = "word pieces with [CLS] and [SEP], not padded"
    if record_type == "example":
        return Schema((Feature("tokens", "bytes", (None,), meaning, kind="text"),))
    return Schema((Feature("tokens", "bytes", (None,), meaning, sequence=True),))
