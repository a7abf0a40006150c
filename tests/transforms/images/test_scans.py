"""Progressive JPEGs of very many scans are refused before any is decoded."""

from __future__ import annotations

import io
import time

import pytest
from PIL import Image

from recordmill.records.errors import UsageError
from recordmill.transforms.images.decoding import ImageRejectedError, decode
from recordmill.transforms.images.image_spec import DecodeSpec

from ...pictures import drawn, jpeg


def many_scans(count: int, width: int = 512, height: int = 512) -> bytes:
    """Repeats the last scan of a progressive JPEG, which refines the same bits again."""
    data = jpeg(width, height, progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * count + data[-2:]


def with_thumbnails(count: int) -> bytes:
    """A JPEG with others in its comments: their scans are not its own."""
    thumbnail = jpeg(16, 16, progressive=True)
    comment = b"\xff\xfe" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    data = jpeg(progressive=True)
    return data[:2] + comment * count + data[2:]


def test_many_scans_are_a_reject_in_no_time() -> None:
    data = many_scans(2000)
    began = time.process_time()
    with pytest.raises(ImageRejectedError) as caught:
        decode(data, DecodeSpec(), channels=3)
    assert time.process_time() - began < 2
    assert caught.value.reason == "decompression_bomb"
    assert caught.value.detail == "2009 scans, at most 100"


@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("restart", [0, 1])
def test_usual_files_are_taken(subsampling: int, restart: int) -> None:
    out = io.BytesIO()
    drawn(200, 100).save(
        out, "JPEG", progressive=True, subsampling=subsampling, restart_marker_blocks=restart
    )
    assert decode(out.getvalue(), DecodeSpec(max_scans=10), channels=3).image.size == (200, 100)
    with pytest.raises(ImageRejectedError, match="10 scans, at most 9"):
        decode(out.getvalue(), DecodeSpec(max_scans=9), channels=3)


def test_scans_of_thumbnails_do_not_count() -> None:
    assert isinstance(decode(with_thumbnails(20), DecodeSpec(), channels=3).image, Image.Image)
    assert decode(jpeg() + b"\xff\xda" * 500, DecodeSpec(), channels=3).header.width == 48


def test_the_limit_is_a_number_of_scans() -> None:
    with pytest.raises(UsageError, match=r"^DecodeSpec\.max_scans must be at least 1, got 0"):
        DecodeSpec(max_scans=0)
