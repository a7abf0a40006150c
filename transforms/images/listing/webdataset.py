"""WebDataset's tars: members of one name before the first dot are one sample.

`0017.jpg`, `0017.cls` and `0017.json` are an image, its label, and fields of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO, Any

from recordmill.records.errors import UsageError, listed
from recordmill.transforms.images.extensions import has_image_extension
from recordmill.transforms.images.listing.archives import Member, is_archive, tar_rows
from recordmill.transforms.images.listing.entries import (
    Entry,
    Listing,
    is_encodable,
    make_reference,
    printable,
)
from recordmill.transforms.images.listing.image_files import find_files, outside_reject
from recordmill.transforms.images.listing.joins import Listed
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.sources.json_rows import parse_object
from recordmill.transforms.sources.row_fields import RecordRejectedError
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import cogroup
from recordmill.transforms.storage.globs import OUTSIDE
from recordmill.transforms.storage.tar_files import sample_key

_MOST_BYTES = 1 << 20  # of a label or of fields
_LABEL_FIELDS = ("cls", "label")


class _SampleError(Exception):
    """A sample cannot be used: the reason, and what was found."""


def webdataset_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields the images of tars, in order of name for each, by the names of their members.

    Raises:
      UsageError: a tar is compressed, or cannot be opened.
    """
    for name, file in find_files(spec.patterns, listing):
        if not is_archive(file.path) or not file.path.lower().endswith(".tar"):
            listing.pass_over("no_image_extension", name)
        elif file.size == OUTSIDE:
            yield outside_reject(name, file.path)
        else:
            listing.on_file(*file)
            for item in _samples(name, file.path, spec, listing):
                if isinstance(item, ImageReference):
                    item = replace(item, image=replace(item.image, modified_ns=file.modified_ns))
                yield item


def _samples(name: str, path: str, spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    wanted = [field.name for field in spec.kept_fields]
    if spec.labels_from != "none":
        wanted += [spec.label_field] if spec.label_field else _LABEL_FIELDS
    rows = (
        (sample_key(member), tag, content if tag != "member" else (member, content))
        for member, tag, content in tar_rows(path)
    )
    try:
        with files.open_read(path) as handle:
            for key, contents in cogroup(rows, scratch=listing.scratch):
                full = printable(f"{name}/{key}".rstrip("/"))
                for position, detail in contents.get("broken_archive", []):
                    yield ListedReject(full, "broken_archive", detail, position)
                if not contents.get("member"):
                    continue
                try:
                    members = [(m, Member(*content)) for m, content in contents["member"]]
                    yield _sample(_Sample(handle, path, members, wanted), name, spec)
                except _SampleError as error:
                    yield ListedReject(full, *error.args)
    except OSError as error:
        raise UsageError(f"--input {path} cannot be read: {error}") from error


class _Sample:
    """The members of one key, by extension; `wanted` are fields of its .json."""

    def __init__(
        self, handle: IO[bytes], path: str, members: list[tuple[str, Member]],
        wanted: Sequence[str],
    ) -> None:  # fmt: skip
        self._handle = handle
        self._wanted = wanted
        self.path = path
        self.members: dict[str, tuple[str, Member]] = {}
        for name, member in members:
            extension = name[len(sample_key(name)) + 1 :].lower()
            if extension in self.members:
                raise _SampleError("duplicate", f"it has two members .{extension}")
            self.members[extension] = (name, member)
        self._fields: dict[str, Any] | None = None

    def value(self, name: str) -> Any:
        """Returns the text of a member by its extension, or a field of the JSON; None for none."""
        if name in self.members:
            return self._text(name).strip()
        if self._fields is None:
            text = self._text("json").encode() if "json" in self.members else b"{}"
            try:
                self._fields = parse_object(text, "strict", self._wanted)
            except RecordRejectedError as error:
                reason = "bad_row" if error.reason == "not_json" else error.reason
                raise _SampleError(reason, f"its .json: {error.detail}") from error
        return self._fields.get(name)

    def _text(self, extension: str) -> str:
        _, member = self.members[extension]
        if member.problem or member.size > _MOST_BYTES:
            problem = member.problem or f"{member.size} bytes"
            raise _SampleError("bad_row", f"its .{extension} cannot be used: {problem}")
        self._handle.seek(member.offset)
        try:
            return self._handle.read(member.size).decode("utf-8")
        except UnicodeDecodeError as error:
            raise _SampleError("bad_row", f"its .{extension} is no UTF-8") from error


def _sample(sample: _Sample, archive: str, spec: SourceSpec) -> Listed:
    """Returns the image of a sample.

    Raises:
      _SampleError: it has none, or several, or lacks what is asked for.
    """
    images = [
        each for each in sample.members if has_image_extension(f".{each}") and "." not in each
    ]
    if len(images) != 1:
        found = listed(sorted(sample.members))
        raise _SampleError("duplicate" if images else "no_image", f"its members are {found}")
    name, member = sample.members[images[0]]
    if member.problem:
        raise _SampleError("no_image", member.problem)
    if not is_encodable(name):
        raise _SampleError("bad_name", "the member's name is not UTF-8")
    entry = Entry(
        f"{archive}/{name}", sample.path, "range", member.offset, member.size,
        inner=len(archive) + 1,
    )  # fmt: skip
    labels = () if spec.labels_from == "none" else _labels(sample, spec.label_field)
    kept = []
    for field in spec.kept_fields:
        value = sample.value(field.name)
        if value is None:
            raise _SampleError("bad_row", f"it has no {field.name!r}")
        try:
            kept.append(field.check(value if isinstance(value, str) else json.dumps(value)))
        except ValueError as error:
            raise _SampleError("bad_row", f"{field.name!r}: {error}") from error
    item = make_reference(spec, entry, labels=labels)
    return replace(item, fields=tuple(kept)) if isinstance(item, ImageReference) and kept else item


def _labels(sample: _Sample, name: str) -> tuple[str, ...]:
    for each in (name,) if name else _LABEL_FIELDS:
        value = sample.value(each)
        if value not in (None, ""):
            return (value if isinstance(value, str) else json.dumps(value),)
    wanted = name or " or ".join(_LABEL_FIELDS)
    raise _SampleError("no_label", f"it has no {wanted} among {listed(sorted(sample.members))}")
