"""recordmill's stages in a pipeline of one's own, with a DoFn between them.

    python examples/own_pipeline.py --input='corpus/*.txt' --output=ds --vocab_file=vocab.txt

takes the flags of `recordmill text`, and writes the size of every shard to <output>.csv on the way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import apache_beam as beam

from recordmill.pipelines.faces import parse
from recordmill.pipelines.planning.plan_job import plan_job
from recordmill.pipelines.planning.text_planner import TextPlanner
from recordmill.pipelines.text_request import text_request
from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.dataset.commit import CommitDataset
from recordmill.transforms.shuffle.regroup import RegroupRuns
from recordmill.transforms.text.build_text_shards import BuildShards
from recordmill.transforms.text.scatter import ScatterDocuments
from recordmill.transforms.text.text_shard_plan import PlanShards
from recordmill.transforms.text.text_spec import TextSpec


class CountWorkItems(beam.DoFn):
    """Counts what passes, as any DoFn of a user's might do more."""

    def process(self, work_item: int) -> Iterator[int]:
        """Lets a work item's number pass."""
        beam.metrics.Metrics.counter("own", "work_items").inc()
        yield work_item


def main(arguments: list[str]) -> None:
    """Plans the job and runs the stages one after the other."""
    spec = parse(TextSpec, arguments, program="own_pipeline.py")
    plan = plan_job(TextPlanner(text_request(spec)), workers=1)
    if plan is None:
        print("the dataset is complete: nothing to do")
        return
    job, tree = plan.job, plan.stages
    output, sizes = job.workspace.output, f"{job.workspace.output}.csv"
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        built = (
            pipeline
            | "WorkItems" >> beam.Create(range(tree.work_items))
            | "Scatter" >> ScatterDocuments(job)
            | "CountWorkItems" >> beam.ParDo(CountWorkItems())
            | "Regroup" >> RegroupRuns(job, tree)
            | "PlanShards" >> PlanShards(job, tree)
            | "Build" >> BuildShards(job, tree)  # examples in a shard
        )
        _ = (
            built
            | "Line" >> beam.Map(lambda count: f"{count}")
            | "WriteSizes" >> beam.io.WriteToText(sizes, shard_name_template="")
        )
        _ = built | "Sum" >> beam.CombineGlobally(sum) | "Commit" >> CommitDataset(job, plan.commit)
    print(f"the dataset is in {output}, the size of every shard in {sizes}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (RunError, UsageError) as error:
        sys.exit(f"own_pipeline.py: {error}")
