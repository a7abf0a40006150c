"""TFDS's build of the images that are listed in a file, by Beam on this machine.

python benchmarks/tfds_build.py LISTING OUTPUT WORKERS [copy]
"""

from __future__ import annotations

import io
import logging
import os
import sys
from pathlib import Path
from typing import Any

import apache_beam as beam
import tensorflow_datasets as tfds
from apache_beam.options.pipeline_options import PipelineOptions
from ways import transform

# Beam's workers import `ways` too.
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:1], os.environ.get("PYTHONPATH", "")])
LISTING, OUTPUT, WORKERS, *COPY = sys.argv[1:]


class Photos(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> Any:
        features = {
            "image": tfds.features.Image(), "label": tfds.features.ClassLabel(num_classes=2)
        }  # fmt: skip
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Any:
        is_copy = bool(COPY)

        def make(item: tuple[int, str]) -> tuple[str, dict[str, Any]]:
            number, path = item
            data = Path(path).read_bytes() if is_copy else transform(path, bool(number % 2))
            return path, {"image": io.BytesIO(data), "label": int("/b/" in path)}

        paths = Path(LISTING).read_text().split()
        return beam.Create(list(enumerate(paths))) | beam.Map(make)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    options = PipelineOptions(
        runner="FnApiRunner", direct_num_workers=int(WORKERS),
        direct_running_mode="multi_processing",
    )  # fmt: skip
    Photos(data_dir=OUTPUT).download_and_prepare(
        download_config=tfds.download.DownloadConfig(beam_runner=None, beam_options=options)
    )
