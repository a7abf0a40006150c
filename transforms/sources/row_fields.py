"""What is read of a record beside its text: a second text, a label, and fields that are kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from recordmill.records.errors import listed
from recordmill.transforms.dataset.labels import breaks_lines, named_label
from recordmill.transforms.sources.kept_fields import KeptField

MISSING = object()


class RecordRejectedError(Exception):
    """A record cannot be used: `reason` is a key of `rejects.REASONS`, `detail` what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class LabelSpec:
    """Where the label of a record is.

    Attributes:
      name: of its field.
      is_number: it is a number to be predicted, and no class.
      names: the labels that there may be, in order; () for any.
    """

    name: str
    is_number: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowSpec:
    """What is read of a record beside its text.

    Attributes:
      label: where given, a record is one example: its texts are not cut into sentences.
      pair_field: the field of a second text, "" for none.
      keep_fields: the fields that are carried along.
      prompt_field: the field of a prompt, "" for none; a record is then one example, whose texts
        are the prompt, which may be empty, and the text.
    """

    label: LabelSpec | None = None
    pair_field: str = ""
    keep_fields: tuple[KeptField, ...] = ()
    prompt_field: str = ""

    @property
    def is_example(self) -> bool:
        """Whether a record is one example, whose texts are not cut into sentences."""
        return self.label is not None or bool(self.prompt_field)

    @property
    def is_carried(self) -> bool:
        """Whether documents carry anything: first the label, then the kept fields."""
        return self.label is not None or bool(self.keep_fields)

    @property
    def num_carried(self) -> int:
        """The number of texts that a document carries."""
        return (self.label is not None) + len(self.keep_fields)

    @property
    def flags(self) -> list[tuple[str, str]]:
        """Flag -> field, "" where none is asked for."""
        return [
            ("--text_pair_field", self.pair_field),
            ("--prompt_field", self.prompt_field),
            ("--label_field", self.label.name if self.label else ""),
            *(("--keep_fields", kept.name) for kept in self.keep_fields),
        ]

    def carried(self, fields: Mapping[str, object]) -> tuple[str, ...]:
        """Returns the label of a record, where there is one, and its kept fields, as text.

        Raises:
          RecordRejectedError: a field is not there, or not of its kind.
        """
        found = [_label(fields, self.label)] if self.label else []
        for kept in self.keep_fields:
            text = _as_text(required_field(fields, kept.name))
            if text is None:
                raise RecordRejectedError("field_missing", f"{kept.name!r} is null")
            try:
                found.append(kept.check(text))
            except ValueError as error:
                raise RecordRejectedError("bad_row", f"{kept.name!r}: {error}") from error
        return tuple(found)


def find_field(fields: Mapping[str, object], name: str) -> object:
    """Returns a field by its name, or by a path such as "meta.text" in nested objects.

    Returns:
      The value; `MISSING` where there is none.
    """
    if name in fields:
        return fields[name]
    outer, dot, inner = name.partition(".")
    value = fields.get(outer)
    return find_field(value, inner) if dot and isinstance(value, Mapping) else MISSING


def required_field(fields: Mapping[str, object], name: str) -> object:
    """Returns what `find_field` does.

    Raises:
      RecordRejectedError: there is no such field.
    """
    value = find_field(fields, name)
    if value is MISSING:
        raise RecordRejectedError("field_missing", f"no {name!r} among {listed(fields)}")
    return value


def text_field(fields: Mapping[str, object], name: str, *, filled: bool) -> str:
    """Returns a field that has text, without the lone surrogates that JSON's escapes can spell.

    Args:
      fields: of a record.
      name: of the field.
      filled: whether there must be more than white space.

    Raises:
      RecordRejectedError: there is no such field, or no text in it.
    """
    text = required_field(fields, name)
    if not isinstance(text, str):
        if filled and text is None:
            raise RecordRejectedError("no_text", f"{name!r} is null")
        raise RecordRejectedError("field_not_text", f"{name!r} is {type(text).__name__}")
    if filled and not text.strip():
        raise RecordRejectedError("no_text", f"{name!r} is {text!r}")
    return without_surrogates(text)


def _label(fields: Mapping[str, object], spec: LabelSpec) -> str:
    value = required_field(fields, spec.name)
    if isinstance(value, (dict, list)):
        raise RecordRejectedError("bad_row", f"{spec.name!r} is {type(value).__name__}")
    label = (_as_text(value) or "").strip()
    if not label:
        raise RecordRejectedError("no_label", f"{spec.name!r} is {value!r}")
    if spec.is_number and not _is_number(label):
        raise RecordRejectedError("bad_row", f"{spec.name!r} is {label!r}, and no number")
    if spec.names:
        label = named_label(label, spec.names)
    if spec.names and label not in spec.names:
        raise RecordRejectedError("unknown_label", f"{spec.name!r} is {label!r}")
    if breaks_lines(label):
        raise RecordRejectedError("bad_row", f"{spec.name!r} is {label!r}, more than a line")
    return label


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _as_text(value: object) -> str | None:
    """Returns a value as text, other than text in JSON's form; None for null."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return without_surrogates(text)


def without_surrogates(text: str) -> str:
    """Returns a text with "?" for each half of a surrogate pair, which JSON's escapes can spell."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
