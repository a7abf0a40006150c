"""Messages of users' own pipelines: they name arguments of Python, where commands name flags.

The checks are those of the commands, so their messages name flags. Where a transform checks its
arguments, and where a stage of a pipeline fails, they are turned: `--max_tokens` becomes
`max_tokens`, `--no-check_case` `check_case=False`, and `--packing=none` `packing='none'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from recordmill.records.errors import RunError, UsageError

_FLAG = re.compile(r"(?<![\w/-])--(no-)?([a-z]\w*)(?:=((?:[^\s;:,()'\"]|[:,.](?=[^\s]))+))?")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ARGUMENT = re.compile(r"[A-Za-z_]\w*(\.[a-z_]\w*)*")
_ELEMENTS = ("Document.", "Image.")  # attributes of elements, of which flags name the fields

_names_flags: ContextVar[bool] = ContextVar("names_flags", default=False)

# Flag, or flag and value -> what it is called in Python, where that is not its name.
ARGUMENTS: dict[str, str] = {
    "overwrite": "overwrite=True",
    "input": "the input",
    "map": "your function",
    "temp_dir": "output",
    "shard_size": "shard_bytes",
}
IMAGE_ARGUMENTS: dict[str, str] = ARGUMENTS | {
    "augmentations": "ImageSpec.augmentation",
    "image_size": "TransformSpec.size",
    "resize": "TransformSpec.mode",
    "resample": "TransformSpec.resample",
    "fill": "TransformSpec.fill",
    "reducing_gap": "TransformSpec.reducing_gap",
    "encoding": "EncodeSpec.format",
    "quality": "EncodeSpec.quality",
    "float_range": "EncodeSpec.float_range",
    "gif": "DecodeSpec.gif",
    "wrong_extension": "DecodeSpec.wrong_extension",
    "labels": "ImageSpec.labels",
    "labels=FILE": "ImageSpec.labels",
    "labels=number": "ImageSpec.numbers=True",
    "labels=none": "ImageSpec.unlabeled=True",
    "multilabel": "multilabel=True",
    "include_masks": "masks=True",
    "binary_masks": "MaskClassSpec.binary=True",
    "mask_threshold": "MaskClassSpec.threshold",
    "mask_values": "MaskClassSpec.values",
    "mask_class": "MaskClassSpec.one_class",
    "max_pixels": "DecodeSpec.max_pixels",
    "max_scans": "DecodeSpec.max_scans",
    "max_metadata_bytes": "DecodeSpec.max_metadata_bytes",
    "max_drawn_pixels": "ImageSpec.max_drawn_pixels",
    "split_by": "Image.group",
    "split_from": "Image.split",
    "masks": "Image.mask",
    "box_format": "Image.boxes",
    "box_units": "Image.boxes",
    "label_field": "Image.label",
    "label_folder": "Image.label",
}
SOURCE_ARGUMENTS: dict[str, str] = ARGUMENTS | {
    "input": "patterns",
    "overwrite": "another run of the pipeline",
}


def name_arguments(message: str, names: Mapping[str, str]) -> str:
    """Returns a message that names arguments in the place of flags.

    Args:
      message: of a check.
      names: one of the tables of this module.
    """

    def turn(found: re.Match[str]) -> str:
        negated, flag, value = found.groups()
        if negated:
            return f"{flag}=False"
        name = names.get(f"{flag}={value}")
        if name:
            return name
        name = names.get(flag, flag)
        argument = name.partition("=")[0]
        # A phrase takes no value, and that of an element's attribute is the name of a field.
        if value is None or name.startswith(_ELEMENTS) or not _ARGUMENT.fullmatch(argument):
            return name
        return f"{argument}={value}" if _NUMBER.fullmatch(value) else f"{argument}={value!r}"

    turned = _FLAG.sub(turn, message)
    return turned.replace("run the same command again", "run the pipeline again")


@contextmanager
def naming_arguments(names: Mapping[str, str]) -> Iterator[None]:
    """Errors of users, raised within, name arguments, but those of commands.

    It can also decorate a function, as `naming_flags` can.
    """
    try:
        yield
    except (UsageError, RunError) as error:
        if _names_flags.get():
            raise
        error.args = (name_arguments(str(error), names), *error.args[1:])
        raise


@contextmanager
def naming_flags() -> Iterator[None]:
    """What is checked within are flags of a command, of which specs of the Python API are made."""
    token = _names_flags.set(True)
    try:
        yield
    finally:
        _names_flags.reset(token)
