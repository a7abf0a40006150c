"""A user's own program that writes images, to be run on any engine: its functions are in __main__,
as those of users are, so that workers get them with the pipeline.

    python write_program.py OUTPUT IMAGES [Beam's options]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.transforms import (
    AugmentationSpec,
    EncodeSpec,
    Image,
    ImageSpec,
    TransformSpec,
    WriteImages,
)

_PARTS = 8
SPEC = ImageSpec(
    task="classification",
    format="tfds",
    transform=TransformSpec((16, 16)),
    encode=EncodeSpec("PNG"),
    augmentation=AugmentationSpec.parse("flip,rotate(15)"),
)


def make_images(part: int, count: int) -> Iterator[Image]:
    """Yields images of random pixels; a broken one now and then."""
    for number in range(part, count, _PARTS):
        draws = np.random.default_rng(number)
        pixels = draws.integers(0, 255, (24, 32, 3), np.uint8)
        data = b"broken" if number % 100 == 7 else pixels
        yield Image(data, key=f"{number}", label=f"class {number % 5}")
        if count > 1000:
            time.sleep(0.002)  # so that the test can kill something meanwhile


def main(output: str, count: int, flags: list[str]) -> None:
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        _ = (
            pipeline
            | "Parts" >> beam.Create(range(_PARTS))
            | "Spread" >> beam.Reshuffle()
            | "Make" >> beam.FlatMap(make_images, count)
            | "Write"
            >> WriteImages(
                output, SPEC, copies=2, num_shards=12, max_rejected=0.02, pack_bytes=1 << 18
            )
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
