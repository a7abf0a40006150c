from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.codec.checking import SchemaChecker
from recordmill.records.codec.framing import scan_records
from recordmill.records.schema import Schema
from recordmill.records.state import decode, encode
from recordmill.transforms.examples.schema_survey import SchemaSurvey, parse_features

from .record_files import example, framed

values = st.one_of(
    st.none(),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    st.lists(st.floats(width=32, allow_nan=False), max_size=3),
    st.lists(st.binary(max_size=4), max_size=3),
)


def survey_of(records: list[bytes]) -> SchemaSurvey:
    survey = SchemaSurvey()
    data = np.frombuffer(framed(records), np.uint8)
    offsets, _, _ = scan_records(data)
    survey.add(data, offsets[:-1], offsets[1:])
    return survey


def shapes(schema: Schema) -> dict[str, tuple[str, object, bool]]:
    return {f.name: (f.dtype, f.shape, f.optional) for f in schema.features}


def test_types_counts_and_what_is_optional() -> None:
    survey = survey_of(
        [
            example(id=1, ids=[1, 2, 3], text="a", some=[0.5]),
            example(id=-2, ids=[4, 5, 6], text=["a", "b"], late=7),
        ]
    )
    assert shapes(survey.schema()) == {
        "id": ("int64", (), False),
        "ids": ("int64", (3,), False),
        "text": ("bytes", (None,), False),
        "some": ("float32", (None,), True),
        "late": ("int64", (None,), True),
    }
    assert (survey.records, survey.form) == (2, "example")


def test_types_that_differ_have_no_schema() -> None:
    survey = survey_of([example(a=1), example(a="x"), example(a=1)])
    assert (survey.form, survey.records, survey.schema().features) == ("bytes", 3, ())
    assert survey.reason == "feature a is bytes in some records and int64 in others"


@pytest.mark.parametrize("other", [b"raw bytes", b"\x0a\x05", b"\x12\x00", b"\x0a\x02\x0a\x00"])
def test_records_that_are_no_examples_have_no_schema(other: bytes) -> None:
    assert parse_features(other) is None
    survey = survey_of([example(a=1), other, example(a=1)])
    assert (survey.form, survey.records) == ("bytes", 3)
    assert "no tf.Example" in survey.reason


@settings(max_examples=40)
@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abc"), values), min_size=1, max_size=8),
    seed=st.integers(0, 99),
)
def test_all_records_fit_what_was_inferred_however_they_are_spread(
    rows: list[dict[str, object]], seed: int
) -> None:
    records = [example(**row) for row in rows]  # type: ignore[arg-type]
    whole = survey_of(records)
    rng = random.Random(seed)
    parts: list[list[bytes]] = [[], [], []]
    for record in records:
        rng.choice(parts).append(record)
    merged = SchemaSurvey()
    for part in parts:
        merged.merge(decode(encode(survey_of(part)), SchemaSurvey))
    assert (merged.form, merged.records) == (whole.form, len(records))
    if whole.form == "bytes":
        return
    assert merged.schema() == whole.schema()
    data = np.frombuffer(framed(records), np.uint8)
    offsets, _, _ = scan_records(data)
    if whole.schema().features:
        assert SchemaChecker(whole.schema()).check(data, offsets) == []
