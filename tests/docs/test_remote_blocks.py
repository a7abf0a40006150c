"""Blocks that name buckets, clusters and Dataflow are run against stand-ins of these."""

from __future__ import annotations

import gzip
import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import doc_blocks
import pytest
from doc_blocks import Block

from recordmill.pipelines.engines import remote
from recordmill.transforms.storage import files

from ..cloud_storage import BUCKET, Cloud, cloud  # noqa: F401
from ..pipelines.engines.dataflow_service import dataflow_service
from .remote_commands import StandIns, make_stand_ins
from .stand_ins import FlinkStandIn, flink_stand_in

BLOCKS = [block for block in doc_blocks.BLOCKS if block.marker == "remote"]
# As the documentation names them.
BUCKETS = ("b", BUCKET, "my-bucket", "BUCKET")


@pytest.fixture(scope="module")
def buckets(cloud: Cloud, prepared: Path) -> None:  # noqa: F811
    """Buckets with the input that the documentation names."""
    text = next((prepared / "corpus").iterdir()).read_bytes()
    lines = [line for line in text.decode().splitlines() if line]
    records = "".join(json.dumps({"text": line}) + "\n" for line in lines[:400])
    content = {
        "raw/a.txt": text,
        "corpus/a.txt": text,
        "corpus/a.jsonl.gz": gzip.compress(records.encode(), mtime=0),
        "vocab.txt": (prepared / "vocab.txt").read_bytes(),
    }
    for photo in (prepared / "photos").rglob("*.jpg"):
        content[f"photos/{photo.relative_to(prepared / 'photos')}"] = photo.read_bytes()
    for name in BUCKETS:
        if name != BUCKET:
            request = urllib.request.Request(
                f"http://127.0.0.1:{cloud.port}/storage/v1/b?project=my-project",
                json.dumps({"name": name}).encode(),
                {"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=10).close()
        for path, data in content.items():
            files.write_bytes(f"gs://{name}/{path}", data)


@pytest.fixture(scope="module")
def flink() -> Iterator[FlinkStandIn]:
    with flink_stand_in() as started:
        yield started


@pytest.fixture
def stand_ins(
    flink: FlinkStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StandIns]:
    monkeypatch.setattr(remote, "REMOTE_POLL_SECONDS", 0.1)
    with dataflow_service() as service:
        yield make_stand_ins(tmp_path, flink, service, monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("buckets")
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_remote(block: Block, workplace: Path, stand_ins: StandIns) -> None:
    shutil.rmtree(workplace / "ds")
    for name in BUCKETS:
        for dataset in ("ds", "images"):
            files.delete_folder(f"gs://{name}/{dataset}")
    stand_ins.run(block.code)


@pytest.mark.slow
@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    "line",
    [
        "--runner=flink --flink_master=HOST:8081 --parallelism=9",
        "--runner=flink --flink_master=HOST:8082",
        "--runner=prism --prism_location=/usr/local/bin/prisma",
        "--runner=dataflow --project=my-project",
    ],
)
def test_a_wrong_command_fails(line: str, stand_ins: StandIns) -> None:
    job = "recordmill text --input='corpus/*.txt' --output=ds --vocab_file=vocab.txt"
    with pytest.raises(AssertionError):
        stand_ins.run(f"{job} {line}")
