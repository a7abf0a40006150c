"""Read the run files that a work item of scatter or of a regroup has finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recordmill.records.errors import RunError
from recordmill.transforms.shuffle.run_files import DamagedRunFileError, RunFile, read_run_file
from recordmill.transforms.shuffle.shuffle_job import ShuffleJob
from recordmill.transforms.storage import files


def read_run_files(
    job: ShuffleJob,
    level: int,
    number: int,
    *,
    histograms: bool = True,
) -> list[RunFile]:
    """Reads the tails of the run files of a work item: mostly one, more from a huge file.

    Args:
      job: whose run files they are.
      level, number: of the work item.
      histograms: they are read, too.

    Raises:
      RunError: one is missing, damaged or of another run; the next run makes it anew.
    """
    path = job.description_path(level, number)
    infos = job.read_run_infos(level, number)
    if infos is None:
        raise RunError(f"{path} is missing or damaged; run the same command again")
    folder, token = job.runs_folder(level), job.workspace.token
    with made_anew(job, level, number):
        return [read_run_file(folder, info, token=token, histograms=histograms) for info in infos]


@contextmanager
def made_anew(job: ShuffleJob, level: int, number: int) -> Iterator[None]:
    """Sees to it that the next run makes the run files of a work item anew if one is damaged.

    Raises:
      RunError: one is.
    """
    try:
        yield
    except DamagedRunFileError as error:
        # What was merged of it may be gone too: then the levels below are done again.
        marks = (job.dropped_path(below) for below in range(level + 1))
        files.delete_quietly([job.description_path(level, number), *marks])
        raise RunError(f"{error}; run the same command again, which makes it anew") from error
