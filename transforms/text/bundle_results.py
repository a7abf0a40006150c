"""What bundles of documents have written: run files, and files of rejects and of samples.

The texts of rejects and samples do not cross a stage boundary, only the names of their files do. So
what the engine holds of a bundle is small, and the plan's worker reads one file after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from tempfile import SpooledTemporaryFile

import msgspec
from msgspec.structs import replace

from recordmill.records.errors import RunError
from recordmill.records.inside import check_inside
from recordmill.records.state import decode, encode
from recordmill.transforms.dataset.bundles import Written, runs_folder
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.dataset.rejects import write_rejects
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row, sort_rows
from recordmill.transforms.text.cleaning.drop_lists import DropLists, LinesFile
from recordmill.transforms.text.cleaning.element_hashes import RunHashes
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_shard_plan import ScatterTotals
from recordmill.transforms.text.text_state import ScatterResult

_SPOOL_BYTES = 1 << 22


class BundleResult(msgspec.Struct, frozen=True):
    """The results of a bundle, or of several.

    Attributes:
      scatter: run files and counts; its contents and its file of rejects are not known yet.
      rejects: the files of rejected documents, by name.
      samples: the files of samples of the texts of each split, by name.
      hashes: of each run file in order, where documents are compared; then they are not counted as
        used or dropped so far, and their chunks have numbers in the place of keys.
      lines: the files of lines of documents that are dropped, where these are listed.
    """

    scatter: ScatterResult
    rejects: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    hashes: tuple[RunHashes, ...] = ()
    lines: tuple[LinesFile, ...] = ()

    def written(self) -> Written:
        """Returns the description of it, sized by its tokens."""
        return Written(sum(self.scatter.tokens), encode(self, indent=None).decode())

    @classmethod
    def parse(cls, text: str, folder: str) -> BundleResult:
        """Reads what `written` described.

        Raises:
          ValueError: it is something else.
        """
        found = decode(text, cls)
        names = [*found.rejects, *found.samples]
        names += [run.run for run in found.hashes]
        names += [each.name for each in found.lines]
        check_inside(folder, names, named_by="a description", follow=True)
        return found


def add_up(job: TextJob, texts: Sequence[str]) -> BundleResult:
    """Returns the sums over several descriptions, as one."""
    totals = ScatterTotals(len(job.splits))
    found = [BundleResult.parse(text, runs_folder(job)) for text in texts]
    for each in found:
        totals.add(0, each.scatter)
    scatter = ScatterResult(
        runs=tuple(run for each in found for run in each.scatter.runs),
        chunks=tuple(totals.chunks), tokens=tuple(totals.tokens),
        documents_read=totals.documents_read, documents_used=totals.documents_used,
        rejected=dict(totals.rejected), rejected_file=(0, 0), labels=tuple(sorted(totals.labels)),
        dropped=totals.dropped,
    )  # fmt: skip
    return BundleResult(
        scatter,
        tuple(name for each in found for name in each.rejects),
        tuple(name for each in found for name in each.samples),
    )


def write_samples(path: str, samples: Mapping[str, ContentSample]) -> None:
    """Writes the sample of each split, by name."""
    files.write_bytes(path, encode(samples, indent=None))


def read_samples(job: TextJob, names: Iterable[str]) -> dict[str, ContentSample]:
    """Merges the samples in some files, one file after the other.

    Raises:
      RunError: a file is missing.
    """
    merged: dict[str, ContentSample] = {}
    for name in names:
        for split, sample in decode(_read(job, name), dict[str, ContentSample]).items():
            known = merged.setdefault(split, ContentSample())
            known.merge(sample)
            known.keep_least()
    return dict(sorted(merged.items()))


def complete(job: TextJob, whole: BundleResult) -> ScatterResult:
    """Returns the results of all bundles, with the list of rejects written in their order.

    Memory: a bounded number of rejects, and a sample of each split.

    Raises:
      RunError: a file of a bundle is missing.
    """
    dropped_files = DropLists(job).written() if job.clean.list_dropped else {}
    contents = read_samples(job, whole.samples)
    scatter = replace(whole.scatter, contents=contents, dropped_files=dropped_files)
    if not whole.rejects:
        return scatter

    def rows() -> Iterator[Row]:
        for name in whole.rejects:
            for line in _read(job, name).split(b"\n")[:-1]:  # names may have U+2028 in them
                yield f"{line.decode()}\n", "", None

    with SpooledTemporaryFile(max_size=_SPOOL_BYTES) as lines:
        for line, _, _ in sort_rows(rows()):
            lines.write(line.encode())
        rejected = write_rejects(
            lines, number=0, path=job.workspace.rejected_path(0),
            partial_folder=job.workspace.partial_folder,
        )  # fmt: skip
    return replace(scatter, rejected_file=(rejected.size_bytes, rejected.crc32c))


def _read(job: TextJob, name: str) -> bytes:
    path = files.join(runs_folder(job), name)
    try:
        return files.read_bytes(path)
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing; run the pipeline again, from its beginning") from error
