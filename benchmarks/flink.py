"""What slots are worth: jobs on a Flink cluster of this machine, with one slot and with more.

    python examples/flink/cluster.py start && python benchmarks/flink.py --slots=1,2,4

Sleeping tasks tell how work is spread, whatever else the machine does. The image job computes much
and writes little: it tells what a slot is worth where there is a core for it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import apache_beam as beam
from images import make_images

from recordmill.pipelines.engines.choice import choose_engine
from recordmill.pipelines.engines.engine_spec import EngineSpec
from recordmill.pipelines.engines.local import JobSize


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as response:
        return json.load(response)


def describe(master: str, printed: str, stage: str) -> str:
    """Returns how long the job took on the cluster, and what each subtask of a stage read."""
    job = get(f"http://{master}/jobs/{printed.partition('/#/job/running/')[2].split()[0]}")
    [vertex] = [v for v in job["vertices"] if stage in v["name"]]
    subtasks = get(f"http://{master}/jobs/{job['jid']}/vertices/{vertex['id']}")["subtasks"]
    counts = [subtask["metrics"]["read-records"] for subtask in subtasks]
    hosts = {subtask["taskmanager-id"] for subtask in subtasks}
    return f"{job['duration'] / 1000:.1f} s in the cluster, {counts} on {len(hosts)} task managers"


def sleep_one_second(task: int, folder: str) -> int:
    began = time.time()
    time.sleep(1)
    Path(folder, str(task)).write_text(f"{began} {time.time()}")
    return 1


def run_sleeping(beam_flags: list[str], tasks: int, folder: Path) -> str:
    """Returns what is printed, and the seconds from the first task's begin to the last one's end:
    starting workers is left out."""
    folder.mkdir()
    engine = choose_engine(EngineSpec(runner="flink"), beam_flags)

    def build(pipeline: beam.Pipeline) -> object:
        return (
            pipeline
            | "Tasks" >> beam.Create(range(tasks), reshuffle=False)
            | "SpreadTasks" >> beam.Reshuffle()
            | "Sleep" >> beam.Map(sleep_one_second, str(folder))
        )

    printed = StringIO()
    with redirect_stderr(printed):
        engine.submit(build, folder="/tmp", failure_path="/nowhere", size=JobSize(tasks, 0, 1))
    times = [[*map(float, path.read_text().split())] for path in folder.iterdir()]
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    return f"{printed.getvalue()}\n{len(times)} tasks of 1 s took {seconds:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flink_master", default="localhost:8081")
    parser.add_argument("--job_endpoint", default="localhost:8099")
    parser.add_argument("--slots", default="1,2")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--copies", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=24)
    options = parser.parse_args()
    master = options.flink_master
    where = [f"--flink_master={master}", f"--job_endpoint={options.job_endpoint}"]
    with tempfile.TemporaryDirectory() as folder:
        make_images(Path(folder, "photos"), [], options.images)
        for slots in options.slots.split(","):
            beam_flags = [*where, f"--parallelism={slots}"]
            printed = run_sleeping(beam_flags, options.tasks, Path(folder, f"sleep-{slots}"))
            took, summary = printed.rpartition("\n")[2], describe(master, printed, "Sleep")
            print(f"{slots} slots: {took}; {summary}", flush=True)
            command = [
                sys.executable, "-m", "recordmill.pipelines.images", f"--input={folder}/photos",
                "--image_size=224x224", "--augmentations=flip,randaugment(2,9)",
                f"--copies={options.copies}", "--num_shards=16", f"--output={folder}/ds-{slots}",
                "--runner=flink",
                *beam_flags,
            ]  # fmt: skip
            run = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            if run.returncode:
                sys.exit(run.stderr)
            print(f"{slots} slots: images, {describe(master, run.stderr, 'BuildPart')}", flush=True)


if __name__ == "__main__":
    main()
