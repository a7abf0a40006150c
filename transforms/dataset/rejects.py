"""Rejects: inputs that cannot be used, and why; one JSON line each, counted by reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import IO, NamedTuple

import google_crc32c

from recordmill.records.state import Count, Uint32
from recordmill.transforms.storage import files

_BLOCK_BYTES = 1 << 22

# The reasons, and what they mean to the person who reads them. Counters and files use the keys.
REASONS = {
    # text
    "undecodable": "bytes that are not valid in --encoding; give the right one, such as "
    "--encoding=latin-1, or see --encoding_errors",
    "not_text": "the file is of a format that is no text; leave it out of --input",
    "not_json": "the line, or the value of an array, is not a JSON object",
    "field_missing": "the record lacks a field that is read of it, such as --text_field or "
    "--label_field",
    "no_text": "the text of a row to classify, or the second text of its pair, is empty",
    "field_not_text": "the field is no string",
    "wrong_number_of_fields": "the row has more or fewer fields than the header",
    "broken_page": "the page of the dump is not whole, or its markup cannot be read",
    "broken_row": "the row cannot be read as CSV; see --quoting",
    "line_too_long": "the record is longer than 64 MiB",
    "document_too_long": "the document has more text than --max_document_bytes",
    "broken_file": "the file ends too early or is damaged; what came before is used",
    # records
    "broken_record": "the checksum of the record's data does not fit; the records behind it are "
    "used",
    "not_an_example": "the record is no tf.Example, so it has no features that --where could "
    "compare",
    "no_key": "the record has no value of --key, or one of another type than most",
    "other_schema": "the record does not fit the schema of --schema",
    # text and images
    "map_error": "a function of --map raised an error; see --map_errors",
    "outside_input": "a link or an annotation leads outside of the input; see --allow_outside",
    "unreadable_file": "the file, or the archive that it is in, cannot be opened or read",
    "no_label": "the image or row has no label or annotation",
    "unknown_label": "the label is none of the classes: those of --labels, where it is given",
    "bad_row": "the row of the table, the annotation or a field of --keep_fields cannot be read",
    "lone_surrogate": "a field that is read has half of a surrogate pair, such as \\ud800, which "
    "is no character; correct it, or for text give --encoding_errors=replace",
    # images, while they are listed
    "no_image": "there is no such image, or nobody can read it where it is",
    "no_mask": "the image has no mask",
    "duplicate": "another image or row has the same name",
    "no_split": "--split_from finds no split for the input, or one that --splits does not name",
    "bad_name": "the file's name is not UTF-8",
    "broken_archive": "the archive is damaged; what came before is used",
    # images, once they are opened
    "empty_image": "the file has no bytes",
    "not_an_image": "the bytes are none of JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, JPEG 2000, "
    "TGA, PPM",
    "wrong_extension": "the name says one format and the bytes are of another",
    "zero_size": "the image is 0 pixels wide or high",
    "decompression_bomb": "the file, or a part of it, unpacks to far too much, see "
    "--max_compression_ratio; or the image has more pixels than --max_pixels, scans than "
    "--max_scans or metadata than --max_metadata_bytes",
    "truncated_image": "the file ends before the image does",
    "broken_image": "the file is damaged",
    "several_frames": "the image is animated or has pages, and --gif=reject",
    "unsupported_pixels": "the pixels are 32-bit integers or floats, of unknown range",
    "mask_size": "the mask is of another size than the image",
    "too_many_objects": "the image has more objects than --max_objects",
    "too_much_to_draw": "the regions of the image take more pixels to draw than --max_drawn_pixels",
    "broken_mask": "the mask cannot be decoded, or its region is not one of the image's",
    "mask_classes": "the mask's pixels are not class numbers of --labels",
    "unencodable": "the format to write cannot hold an image of this size",
    "label_count": "the image has no label, or several without --multilabel",
}
# What they mean where nothing but text is read.
TEXT_REASONS = REASONS | {
    "decompression_bomb": "the file, or a part of it, unpacks to far too much",
}


def of_whole_documents(reasons: Mapping[str, int]) -> dict[str, int]:
    """Returns the rejects that are no single lines: their budget is a share of the documents."""
    return {reason: count for reason, count in reasons.items() if reason != "undecodable"}


@dataclass(frozen=True, slots=True, order=True)
class Reject:
    """One rejected input.

    Attributes:
      source: the file's name relative to the input root; of an element its key.
      position: bytes from its beginning, after decompression; of Parquet, the number of the row.
      stage: "read" or "parse"; of images "list" or "decode"; "map" of users' functions.
      reason: a key of `REASONS`.
      detail: the values that cause the reject.
    """

    source: str
    position: int
    stage: str
    reason: str
    detail: str = ""

    def to_line(self) -> str:
        """Returns one JSON line."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


class RejectFile(NamedTuple):
    """A file of rejects.

    Attributes:
      number: of the task whose rejects it holds.
      size_bytes: 0 where nothing was rejected and no file was written.
      crc32c: of its content.
    """

    number: Count
    size_bytes: Count
    crc32c: Uint32


def write_rejects(lines: IO[bytes], *, number: int, path: str, partial_folder: str) -> RejectFile:
    """Copies collected lines of rejects to their file; without lines no file is written.

    Args:
      lines: of all rejects of a work item; it is read from its beginning.
      number: of the task.
      path: of the file, `Job.rejected_path(number)`.
      partial_folder: where the file is until it is complete, `Job.partial_folder`.
    """
    lines.seek(0)
    block = lines.read(_BLOCK_BYTES)
    size, crc = 0, 0
    if block:
        with files.writing(path, partial_folder) as out:
            while block:
                out.write(block)
                size, crc = size + len(block), google_crc32c.extend(crc, block)
                block = lines.read(_BLOCK_BYTES)
    return RejectFile(number, size, crc)
