"""All that a report is made of: manifest, statistics, and a sample of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from recordmill.pipelines.inspection.contents import Leak, SplitContents, find_leaks
from recordmill.pipelines.inspection.label_check import LabelCheck, check_labels
from recordmill.pipelines.inspection.record_files import Record, RecordFiles, read_description
from recordmill.pipelines.inspection.sample import Look, SplitSample
from recordmill.pipelines.inspection.token_form import TokenForm, form_of
from recordmill.records.manifest import RUN_PATH, STATISTICS_OF_ALL, STATISTICS_PATH
from recordmill.records.schema import Schema
from recordmill.records.statistics_file import check_statistics
from recordmill.transforms.storage import files

_MASK = "[MASK]"
_PIECE_BYTES = 1 << 14


@dataclass(frozen=True)
class Facts:
    """What was read of a dataset.

    Attributes:
      records: where its records are.
      schema: of the records.
      samples: split -> sums over some of its records.
      shown: the records that the page shows, and their values.
      vocabulary: the token of each id; None shows ids.
      contents: split -> digests of the records that were compared.
    """

    records: RecordFiles
    schema: Schema
    samples: Mapping[str, SplitSample]
    shown: Sequence[tuple[Record, Mapping[str, Any]]]
    vocabulary: Sequence[str] | None
    contents: Mapping[str, SplitContents] = field(default_factory=dict)

    @cached_property
    def form(self) -> TokenForm:
        """What the configuration says of rows of tokens."""
        return form_of(self.records.manifest, self.vocabulary)

    @cached_property
    def leaks(self) -> list[Leak]:
        """What each two splits share."""
        return find_leaks(self.contents)

    @cached_property
    def label_check(self) -> tuple[LabelCheck | None, list[Look]]:
        """What a simple classifier says of the labels of the sampled images, and these images."""
        looks = [look for sample in self.samples.values() for look in sample.looks]
        if not looks:
            return None, []
        features = np.stack([look.features for look in looks])
        return check_labels(features, [look.label for look in looks]), looks

    def class_name(self, number: int) -> str:
        """Returns the name of a class, or its number where none is known."""
        names = next((f.classes for f in self.schema.features if f.classes), ())
        return names[number] if 0 <= number < len(names) else str(number)

    @property
    def mask_id(self) -> int | None:
        """The id of [MASK], None without a vocabulary that has it."""
        known = self.vocabulary
        return known.index(_MASK) if known and _MASK in known else None

    @cached_property
    def statistics(self) -> dict[str, Any]:
        """The content of `statistics.json`, {} where there is none."""
        path = files.join(self.records.path, STATISTICS_PATH)
        return read_description(path, check_statistics) if self.records.manifest else {}

    @cached_property
    def run(self) -> dict[str, Any]:
        """The content of `run.json`, {} where there is none."""
        path = files.join(self.records.path, RUN_PATH)
        return read_description(path) if self.records.manifest else {}

    @cached_property
    def splits(self) -> dict[str, dict[str, Any]]:
        """The statistics of each split."""
        return {
            name: sums for name, sums in self.statistics.items() if name not in STATISTICS_OF_ALL
        }

    @property
    def stored_schema(self) -> Schema | None:
        """The schema, where a manifest has it."""
        return self.schema if self.records.manifest else None

    @cached_property
    def twin_files(self) -> list[list[str]]:
        """Paths of files with the same bytes; of files without a manifest, with the same size and
        the same first, middle and last bytes."""
        twins: dict[object, list[str]] = {}
        manifest = self.records.manifest
        if manifest:
            for shard in manifest.shards:
                if shard.records:
                    key = (shard.crc32c, shard.file_bytes)
                    twins.setdefault(key, []).append(shard.name.path)
        else:
            sizes: dict[int, list[str]] = {}
            for file in (file for split in self.records.splits.values() for file in split):
                if file.file_bytes:
                    sizes.setdefault(file.file_bytes, []).append(file.path)
            for size, paths in sizes.items():
                for path in paths if len(paths) > 1 else ():
                    twins.setdefault((size, _pieces(path, size)), []).append(path)
        return [paths for paths in twins.values() if len(paths) > 1]

    def config(self, name: str) -> Mapping[str, Any]:
        """Returns a part of the configuration, {} where there is none."""
        manifest = self.records.manifest
        found = manifest.config.get(name) if manifest else None
        return found if isinstance(found, dict) else {}


def _pieces(path: str, size: int) -> bytes:
    """Returns the bytes at the beginning, in the middle and at the end of a file."""
    starts = (0, max(0, size // 2 - _PIECE_BYTES // 2), max(0, size - _PIECE_BYTES))
    return b"".join(files.read_bytes(path, start, _PIECE_BYTES) for start in starts)
