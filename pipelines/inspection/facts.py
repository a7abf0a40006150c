"""All that a report is made of: manifest, statistics, and a sample of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from recordmill.pipelines.inspection.record_files import Record, RecordFiles, read_description
from recordmill.pipelines.inspection.sample import SplitSample
from recordmill.records.manifest import STATISTICS_OF_ALL, STATISTICS_PATH
from recordmill.records.schema import Schema
from recordmill.transforms.storage import files


@dataclass(frozen=True)
class Facts:
    """What was read of a dataset.

    Attributes:
      records: where its records are.
      schema: of the records.
      samples: split -> sums over some of its records.
      shown: the records that the page shows, and their values.
      vocabulary: the token of each id; None shows ids.
    """

    records: RecordFiles
    schema: Schema
    samples: Mapping[str, SplitSample]
    shown: Sequence[tuple[Record, Mapping[str, Any]]]
    vocabulary: Sequence[str] | None

    @cached_property
    def statistics(self) -> dict[str, Any]:
        """The content of `statistics.json`, {} where there is none."""
        path = files.join(self.records.path, STATISTICS_PATH)
        return read_description(path) if self.records.manifest else {}

    @cached_property
    def splits(self) -> dict[str, dict[str, Any]]:
        """The statistics of each split."""
        return {
            name: sums
            for name, sums in self.statistics.items()
            if name not in STATISTICS_OF_ALL and isinstance(sums, dict)
        }

    @property
    def stored_schema(self) -> Schema | None:
        """The schema, where a manifest has it."""
        return self.schema if self.records.manifest else None

    def config(self, name: str) -> Mapping[str, Any]:
        """Returns a part of the configuration, {} where there is none."""
        manifest = self.records.manifest
        found = manifest.config.get(name) if manifest else None
        return found if isinstance(found, dict) else {}
