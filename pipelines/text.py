"""Raw text to masked, sharded TFRecords: the pipeline, and `python -m
recordmill.pipelines.text`."""

from __future__ import annotations

import sys
from typing import Any

import apache_beam as beam
from recordmill.pipelines.planning import TextPlan
from recordmill.transforms.build import BuildShards
from recordmill.transforms.commit import CommitDataset
from recordmill.transforms.job import TextJob
from recordmill.transforms.plan import RunTree
from recordmill.transforms.regroup import RegroupRuns
from recordmill.transforms.scatter import ScatterDocuments
from recordmill.transforms.shard_plan import decide_or_fail


class _PlanShardsDoFn(beam.DoFn):
    def __init__(self, job: TextJob, tree: RunTree) -> None:
        self._job = job
        self._tree = tree

    def process(self, finished: int) -> Any:
        del finished  # it only has to be there
        yield from decide_or_fail(self._job, self._tree)


def build_text(pipeline: beam.Pipeline, plan: TextPlan) -> beam.PCollection[dict[str, Any]]:
    """Applies the stages of a text job; only small descriptions pass between them."""
    job, tree = plan.job, plan.tree
    numbers = (
        pipeline
        | "Tasks" >> beam.Create(range(tree.tasks), reshuffle=False)
        | "SpreadTasks" >> beam.Reshuffle()
        | "Scatter" >> ScatterDocuments(job)  # task
    )
    for level in range(1, tree.levels + 1):
        numbers = (
            numbers
            | f"Await{level}" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
            | f"Runs{level}" >> beam.FlatMap(lambda _, runs: range(runs), tree.runs(level))
            | f"SpreadRuns{level}" >> beam.Reshuffle()
            | f"Regroup{level}" >> RegroupRuns(job, tree, level)  # run
        )
    return (
        numbers
        | "AwaitRuns" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
        | "PlanShards" >> beam.ParDo(_PlanShardsDoFn(job, tree)).with_output_types(tuple[int, int])
        | "SpreadShards" >> beam.Reshuffle()
        | "Build" >> BuildShards(job, tree)  # examples in a shard
        | "SumExamples" >> beam.CombineGlobally(sum)
        | "CommitDataset" >> CommitDataset(job, plan.commit)
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs `recordmill text`; returns the exit status."""
    from recordmill.pipelines.command_line import main as command_line

    return command_line(["text", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
