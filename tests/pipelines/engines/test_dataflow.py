"""Dataflow: what is submitted, what is said of it, and what is refused before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from google.cloud.dataflow_v1beta3 import JobState, WorkerIPAddressConfiguration

from recordmill.pipelines import templates
from recordmill.pipelines.command_line import main
from recordmill.pipelines.engines import remote
from recordmill.pipelines.engines.dataflow import Machines, choose_machines
from recordmill.pipelines.engines.local import JobSize
from recordmill.records.errors import UsageError
from recordmill.transforms.storage import files

from ...cloud_storage import cloud  # noqa: F401
from ..conftest import Written
from ..jobs import CASES, JobCase
from .dataflow_service import JOB_ID, DataflowService, dataflow_service, read_graph
from .engine_flags import engine_of

pytestmark = pytest.mark.usefixtures("cloud")

IMAGE = "somewhere/recordmill:1"
PLACE = ("--project=my-project", "--region=europe-west1", "--temp_location=gs://bucket/temp")
FLAGS = ("--runner=dataflow", *PLACE, f"--sdk_container_image={IMAGE}")
ONE_WORKER = ("--machine_type=n1-standard-1", "--max_num_workers=1")
LINK = f"https://console.cloud.google.com/dataflow/jobs/europe-west1/{JOB_ID}?project=my-project"


@pytest.fixture(scope="module")
def upload(
    cloud: object,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], JobCase]:
    """Puts the input of a small job on the bucket, and returns that job."""

    @cache
    def put(kind: str) -> JobCase:
        source = tmp_path_factory.mktemp(kind) / "input"
        CASES[kind].fill(source, 1)
        for path in source.rglob("*"):
            if path.is_file():
                files.write_bytes(
                    f"gs://bucket/{kind}/{path.relative_to(source)}", path.read_bytes()
                )
        return CASES[kind]

    return put


@pytest.fixture(scope="module")
def text(upload: Callable[[str], JobCase]) -> JobCase:
    return upload("text")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataflowService]:
    monkeypatch.setattr(remote, "REMOTE_POLL_SECONDS", 0.1)
    with dataflow_service() as started:
        yield started


def line(job: JobCase, output: str, *flags: str) -> list[str]:
    folder = f"gs://bucket/{job.name}"
    own = [flag.format(folder=folder) for flag in job.flags]
    source = f"--input={folder}/{job.pattern}"
    return [job.command, source, f"--output={output}", *own, *FLAGS, *ONE_WORKER, *flags]


def shards(output: str) -> dict[str, bytes]:
    paths = [path for path in files.list_files(output) if path.endswith(".tfrecords")]
    return {path[len(output) + 1 :]: files.read_bytes(path) for path in paths}


@pytest.mark.parametrize("kind", ["text", "images", pytest.param("gpt", marks=pytest.mark.slow)])
def test_submitted_and_done(
    kind: str,
    upload: Callable[[str], JobCase],
    service: DataflowService,
    written: Callable[[str, str], Written],
    capsys: pytest.CaptureFixture[str],
) -> None:
    job, output = upload(kind), f"gs://bucket/done-{kind}"
    service.states = ["JOB_STATE_RUNNING"]
    assert main(line(job, output, f"--dataflow_endpoint={service.url}")) == 0
    assert shards(output) == written(kind, "small").shards
    assert files.exists(f"{output}/_SUCCESS")
    shown = capsys.readouterr()
    assert f"dataflow: job {JOB_ID}, {LINK}\n" in shown.err
    assert "examples in" in shown.out
    assert not service.states


def test_what_is_submitted(
    text: JobCase, service: DataflowService, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers by the size of the job, and what the user says of them as it is."""
    service.runs = False
    flags = [
        "--no_use_public_ips", "--service_account_email=me@my-project", "--label=team=vision",
        "--subnetwork=regions/europe-west1/subnetworks/sub", "--dataflow_kms_key=key",
        "--network=net", "--job_name=mine", "--no_wait",
    ]  # fmt: skip
    output = "gs://bucket/submitted"
    assert main(line(text, output, f"--dataflow_endpoint={service.url}", *flags)) == 0
    assert f"the job is done when {output}/_SUCCESS exists" in capsys.readouterr().out
    assert not files.exists(f"{output}/_SUCCESS")
    (job,) = service.jobs
    assert job["name"] == "mine"
    assert job["labels"] == {"team": "vision"}
    environment = job["environment"]
    assert environment["serviceAccountEmail"] == "me@my-project"
    assert environment["serviceKmsKeyName"] == "key"
    (pool,) = environment["workerPools"]
    assert pool["ipConfiguration"] == WorkerIPAddressConfiguration.WORKER_IP_PRIVATE
    assert pool["network"] == "net"
    assert pool["subnetwork"] == "regions/europe-west1/subnetworks/sub"
    assert pool["workerHarnessContainerImage"] == IMAGE
    assert pool["numThreadsPerWorker"] == 1
    assert pool["machineType"] == "n1-standard-1"
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 1
    assert pool["diskSizeGb"] == 40
    options = environment["sdkPipelineOptions"]["options"]
    assert options["save_main_session"] is False
    staged = [path for path in files.list_files("gs://bucket/temp") if "/mine." in path]
    # No main session and no packages: the second is a note of Beam's.
    assert {path.rpartition("/")[2] for path in staged} == {
        "pipeline.pb", "submission_environment_dependencies.txt",
    }  # fmt: skip
    graph = read_graph(job)
    names = {transform.unique_name for transform in graph.components.transforms.values()}
    stages = {f"RunStages/DoStages/{name}" for name in ("Scatter", "PlanShards", "Build")}
    assert {*stages, "RunStages/CommitDataset"} <= names


def test_failed(
    text: JobCase, service: DataflowService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.error = "Traceback (most recent call last):\n  File x\nValueError: no such thing"
    output = "gs://bucket/failed"
    assert main(line(text, output, f"--dataflow_endpoint={service.url}")) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "recordmill: ValueError: no such thing"
    assert not files.exists(f"{output}/_SUCCESS")


def test_the_job_cannot_go_on(
    text: JobCase, service: DataflowService, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task leaves the reason: the job is cancelled before Dataflow repeats it."""
    output = "gs://bucket/hopeless"
    service.runs = False
    service.states = ["JOB_STATE_RUNNING"] * 20
    failure = f"{output}/_tmp/failure.txt"
    service.meanwhile = lambda: files.write_bytes(failure, b"too many rejects")
    assert main(line(text, output, f"--dataflow_endpoint={service.url}")) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "recordmill: too many rejects"
    (update,) = service.updates
    assert update["requestedState"] == JobState.JOB_STATE_CANCELLED


def test_refused(
    text: JobCase, service: DataflowService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.refuses = True
    output = "gs://bucket/refused"
    assert main(line(text, output, f"--dataflow_endpoint={service.url}")) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("recordmill: ")
    assert "no permission" in last


@pytest.mark.parametrize("kind", ["text", "images"])
def test_what_a_template_launches(
    kind: str,
    upload: Callable[[str], JobCase],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The launcher names the place of the job's description, and submits that itself."""
    monkeypatch.setenv("RECORDMILL_IMAGE", IMAGE)
    output, place = f"gs://bucket/launched-{kind}", f"gs://bucket/launches/{kind}/job_object"
    given = {flag.partition("=")[0]: flag for flag in line(upload(kind), output)[1:]}
    del given["--sdk_container_image"], given["--runner"]
    labels = '--labels={"goog-dataflow-provided-template-type": "flex"}'
    launcher = ["--runner=DataflowRunner", f"--template_location={place}", labels]
    assert templates.launch(kind, [*given.values(), "--overwrite=false", *launcher]) == 0
    assert f"dataflow: the job was written to {place}" in capsys.readouterr().err
    job = json.loads(files.read_bytes(place))
    assert job["type"] == "JOB_TYPE_BATCH"
    assert job["labels"] == {"goog-dataflow-provided-template-type": "flex"}
    (pool,) = job["environment"]["workerPools"]
    assert pool["workerHarnessContainerImage"] == IMAGE
    assert read_graph(job).components.transforms


def test_dry_run(text: JobCase, capsys: pytest.CaptureFixture[str]) -> None:
    output = "gs://bucket/dry"
    assert main(line(text, output, "--dry_run=True")) == 0
    assert "dataflow: the job is valid; nothing was submitted" in capsys.readouterr().err
    assert not files.exists(f"{output}/_SUCCESS")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"project": None}, "--project is required for --runner=dataflow"),
        ({"region": None}, "--region must be a region for --runner=dataflow, such as europe-west1"),
        ({"region": "europe-west1-b"}, "is --region=europe-west1 --worker_zone=europe-west1-b"),
        ({"temp_location": None}, "--temp_location must be a folder or file on gs://"),
        ({"temp_location": "/tmp/here"}, "for --runner=dataflow, got /tmp/here"),
        ({"temp_location": "gs://none/temp"}, "--temp_location gs://none/temp cannot be written"),
        ({"staging_location": "staging"}, "--staging_location must be a folder or file on gs://"),
        ({"sdk_container_image": None}, "--sdk_container_image is required for --runner=dataflow"),
    ],
)
def test_mistakes_are_one_line(change: dict[str, str | None], message: str) -> None:
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in FLAGS) | change
    given = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    with pytest.raises(UsageError) as error:
        engine_of(given)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_workers_see_no_local_file() -> None:
    engine = engine_of(FLAGS)
    engine.check({"--input": "gs://bucket/in", "--output": "gs://bucket/ds"})
    for flag in ("--input", "--output"):
        with pytest.raises(UsageError, match=f"{flag} must be object storage, such as gs://"):
            engine.check({"--temp_dir": "gs://bucket/ds", flag: "/mnt/nfs/ds"})


@pytest.mark.parametrize(
    ("work_items", "input_bytes", "expected"),
    [
        (1, 0, Machines(2, 1, 30)),
        (16, 16 << 20, Machines(2, 8, 40)),
        (32, 1 << 30, Machines(4, 8, 40)),
        (150, 5_000_000_000, Machines(8, 19, 40)),
        (3_700, 10**12, Machines(8, 100, 40)),
        (10, 10**11, Machines(2, 5, 70)),
    ],
)
def test_machines_suit_the_job(work_items: int, input_bytes: int, expected: Machines) -> None:
    assert choose_machines(JobSize(work_items, input_bytes, processes=1)) == expected
