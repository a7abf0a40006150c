"""`recordmill verify` as a job of one stage: several processes, or an engine, read the shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recordmill.pipelines.commands.shard_checks import ShardReport, ShardToCheck, check_shard
from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.engines.local import JobSize
from recordmill.records.errors import RunError
from recordmill.records.state import decode, encode
from recordmill.transforms.dataset.stages import Done, Stage
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files

if TYPE_CHECKING:
    from recordmill.pipelines.engines.choice import Engine


@dataclass(frozen=True, slots=True)
class _Checking:
    """A run that checks shards: nobody goes on with it.

    Attributes:
      folder: for the reports.
    """

    folder: str

    @property
    def workspace(self) -> Workspace:
        """The folder."""
        return Workspace(output=self.folder, work=self.folder, staging=self.folder)

    def worded(self, message: str) -> str:
        """Returns the message."""
        return message


class CheckShards(Stage[_Checking]):
    """Writes the report of each shard."""

    name = "CheckShards"

    def __init__(self, job: _Checking, targets: Sequence[ShardToCheck]) -> None:
        super().__init__(job)
        self._targets = targets

    def items(self) -> int:
        """Returns the number of shards."""
        return len(self._targets)

    def path(self, item: int) -> str:
        """The report of a shard."""
        return files.join(self.job.folder, f"report-{item:06d}.json")

    def do(self, item: int) -> Done:
        """Reads a shard and its index."""
        report = check_shard(self._targets[item])
        files.write_bytes(self.path(item), encode(report))
        return Done(counts={"records_read": report.records})

    def describe(self, item: int) -> str:
        """Returns its path."""
        return self._targets[item].shard.name.path


def check_on(engine: Engine, targets: Sequence[ShardToCheck], folder: str) -> Iterator[ShardReport]:
    """Yields the report of each shard, in order, once an engine has read them all.

    Args:
      engine: reads them.
      targets: one for each shard.
      folder: an empty one, which all workers reach.

    Raises:
      RunError: the engine failed.
    """
    stage = CheckShards(_Checking(folder), targets)
    size = JobSize(len(targets), sum(each.shard.file_bytes for each in targets), engine.workers)
    try:
        with engine.started():
            engine.run(
                [stage],
                folder=folder,
                failure_path=stage.job.workspace.failure_path,
                size=size,
            )
    except RunError:
        raise
    except (RuntimeError, OSError) as error:
        raise RunError(one_line(error)) from error
    for item in range(len(targets)):
        yield decode(files.read_bytes(stage.path(item)), ShardReport)
