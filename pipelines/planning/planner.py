"""A work plan, and what a kind of job adds to planning: its `Planner`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import Field, dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from recordmill.pipelines.planning.outline import Outline
from recordmill.records.errors import visible
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.writable import check_writable


class StagePlan(Protocol):
    """What the stages of a job must know beside the job; a dataclass of strings and numbers."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def work_items(self) -> int:
        """The work items of the first stage."""


JobT = TypeVar("JobT", bound=Job)
StagesT = TypeVar("StagesT", bound=StagePlan)
InventoryT = TypeVar("InventoryT", bound="Inventory")


@dataclass(frozen=True, slots=True)
class Inventory:
    """The result of inspecting the input, before anything is written.

    Attributes:
      input_bytes: for progress and for cutting work items; guessed for compressed files.
      sources: for the manifest: number, bytes and checksum of the inputs, names where they are few.
      checksums: name -> checksum of whatever else than flags and sources decides the bytes.
      modified: a checksum of the sizes of inputs and of when they were last changed.
    """

    input_bytes: int
    sources: dict[str, Any]
    checksums: dict[str, str | int]
    modified: str

    @property
    def paths(self) -> str:
        """A checksum of where inputs are, which a run that is resumed depends on."""
        return ""


@dataclass(frozen=True, slots=True)
class WorkPlan(Generic[JobT, StagesT]):
    """A job that can run.

    Attributes:
      job: what to do.
      commit: what the manifest will say.
      stages: what the stages need to know.
      input_bytes, modified: see `Inventory`.
      resumed: a run that was killed is being finished.
    """

    job: JobT
    commit: CommitSpec
    stages: StagesT
    input_bytes: int
    modified: str
    resumed: bool = False


class Planner(ABC, Generic[JobT, StagesT, InventoryT]):
    """What a kind of job adds to planning and running.

    Attributes:
      kind: its command, such as "text".
      stages_type: the struct of its stage plan.
      packages: whose versions the manifest names.
      bytes_version: a change of what the bytes are made of, so that no run is finished by a release
        that makes others.
      metadata: files of its own beside those of every dataset.
      vocab_file: the vocabulary of the dataset, "" where it has none.
      kept: files of others, under names of metadata, that stay as they are.
      way_out: what to do where the output holds another dataset.
      notes: what may be wrong with the input.
      settings: the flags as a file, for `_meta/config.yaml`; "" where the job is not of flags.
    """

    kind: str
    stages_type: type[StagesT]
    packages: tuple[str, ...]
    bytes_version: int
    metadata: tuple[str, ...] = ()
    vocab_file: str = ""
    settings: str = ""
    kept: tuple[str, ...] = ()
    way_out: str = "choose another --output, or --overwrite to replace it"

    def __init__(self, job: JobT) -> None:
        self.job = job
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Prints what may be wrong with the input; `run.json` and the report have it too."""
        self.notes.append(text)
        print(visible(text), file=sys.stderr)

    @abstractmethod
    def inspect(self) -> AbstractContextManager[InventoryT]:
        """Checks flags against the input; what it holds for `write` goes when the context ends.

        The job may have learned from the input then: its labels, its splits.

        Raises:
          UsageError: one line: what is wrong, what to do.
        """

    @abstractmethod
    def write(self, inventory: InventoryT, *, workers: int) -> StagesT:
        """Writes the work items, cut for so many workers; returns the stage plan."""

    def warm_up(self) -> Callable[[], None] | None:
        """Returns what loads in one process what the workers forked from it need; None: nothing."""
        return None

    @property
    def is_compiled(self) -> bool:
        """Whether kernels need no compiling, which a second process would help with."""
        return True

    def compile_kernels(self) -> None:
        """Compiles what the job needs, if this machine does it for the first time; says so then."""

    def release(self) -> None:
        """Frees what planning has loaded, where workers do all items."""

    def check_output(self) -> None:
        """Checks that the output can be written.

        Raises:
          UsageError: it cannot.
        """
        check_writable(self.job.workspace.output, "--output")

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Returns what the manifest says of the configuration beside the job's own options."""

    def paths(self) -> dict[str, str]:
        """Returns flag -> path of what workers read and write; the first pattern for all input."""
        workspace = self.job.workspace
        paths = {"--output": workspace.output, "--temp_dir": workspace.work}
        for pattern in self.config().get("input", [])[:1]:
            paths["--input"] = pattern
        return paths

    @abstractmethod
    def describe(self) -> str:
        """Returns the description of the dataset."""

    @abstractmethod
    def stages(self, plan: WorkPlan[JobT, StagesT]) -> Sequence[Stage[Any]]:
        """Returns the stages of the job, in order; the commit follows them."""

    @abstractmethod
    def outline(self, inventory: InventoryT, *, workers: int) -> Outline:
        """Returns what an estimate must know of the job, cut for so many workers.

        Raises:
          UsageError: such a job has no estimate.
        """
