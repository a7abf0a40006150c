"""The values of a record of any form."""

from __future__ import annotations

from typing import Any

from recordmill.pipelines.inspection.record_files import Record
from recordmill.records.errors import RunError
from recordmill.records.example_values import feature_forms, parse_any

RECORD = "record"  # the one feature of a record that is no tf.Example


def record_values(record: Record, *, any_form: bool = False) -> dict[str, Any]:
    """Returns feature -> values.

    Args:
      record: of a dataset.
      any_form: its records have no schema, so it may be something else than a tf.Example: it is
        then the one value of `record`.

    Raises:
      RunError: the record is damaged.
    """
    try:
        return parse_any(record.data)
    except ValueError as error:
        if any_form:
            return {RECORD: [record.data]}
        raise RunError(
            f"{record.file}: record {record.position} cannot be read: {error}; see what else is "
            "broken with `recordmill verify`"
        ) from error


def record_forms(record: Record) -> dict[str, tuple[str, int | None]]:
    """Returns feature -> its dtype and steps, as `feature_forms`; of a record that is no tf.Example
    the one of `record`."""
    try:
        return feature_forms(record.data)
    except ValueError:
        return {RECORD: ("bytes", None)}
