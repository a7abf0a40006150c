"""The stages of `recordmill text` with one of one's own, in a pipeline of one's own.

    python examples/own_pipeline.py --input='corpus/*.txt' --output=ds --vocab_file=vocab.txt

takes the flags of `recordmill text`, and writes the size of every shard to <output>.csv on the way.
"""

from __future__ import annotations

import sys
from pathlib import Path

import apache_beam as beam

from recordmill.pipelines.faces import parse
from recordmill.pipelines.planning.plan_job import plan_job
from recordmill.pipelines.planning.text_planner import TextPlanner
from recordmill.pipelines.text_request import text_request
from recordmill.records.errors import RunError, UsageError
from recordmill.transforms import Done, RunStages, Stage, TextJob, text_stages
from recordmill.transforms.dataset.shard_writer import read_description
from recordmill.transforms.text.text_spec import TextSpec


class WriteSizes(Stage[TextJob]):
    """Writes the size of every shard, once all are built."""

    name = "WriteSizes"

    def items(self) -> int:
        """Returns 1: all shards are one work item."""
        return 1

    def do(self, item: int) -> Done:
        """Reads the descriptions of shards; doing it twice writes the same."""
        found = [read_description(self.job, name) for name in self.job.shard_names()]
        lines = [f"{each.shard.name.path},{each.shard.records}\n" for each in found if each]
        Path(f"{self.job.workspace.output}.csv").write_text("".join(lines))
        return Done(counts={"shards_listed": len(lines)})


def main(arguments: list[str]) -> None:
    """Plans the job and runs the stages one after the other."""
    spec = parse(TextSpec, arguments, program="own_pipeline.py")
    plan = plan_job(TextPlanner(text_request(spec)), workers=1)
    if plan is None:
        print("the dataset is complete: nothing to do")
        return
    stages = [*text_stages(plan.job, plan.stages), WriteSizes(plan.job)]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = pipeline | "RunStages" >> RunStages(stages, plan.commit)
    output = plan.job.workspace.output
    print(f"the dataset is in {output}, the size of every shard in {output}.csv")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (RunError, UsageError) as error:
        sys.exit(f"own_pipeline.py: {error}")
