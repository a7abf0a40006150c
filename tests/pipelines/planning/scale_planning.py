"""Plans a job on a listing that nobody has; run in a process of its own, whose memory it tells.

    python scale_planning.py text|images|estimate FILES BYTES_A_FILE FOLDER

prints, as JSON, what was planned and by how much the process grew. No test of its own.
"""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam.io.filesystem as beam_files

FOLDER_FILES = 1000


class Words(io.RawIOBase):
    """Text without an end."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        line = b"Some words are in every line of it.\n"
        buffer[:] = (line * (len(buffer) // len(line) + 1))[: len(buffer)]
        return len(buffer)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return offset


class Listed(beam_files.FileSystem):
    """An object store of many files of one size, which are listed one by one, in no order."""

    files = 0
    size_bytes = 0
    ending = ""

    @classmethod
    def scheme(cls) -> str:
        return "listed"

    def join(self, base: str, *parts: str) -> str:
        return "/".join([base, *parts])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def has_dirs(self) -> bool:
        return False

    def _list(self, prefix: str) -> Iterator[beam_files.FileMetadata]:
        for i in range(self.files):
            number = i * 7_919 % self.files  # 7,919 is prime: each once
            path = f"listed://in/{number // FOLDER_FILES:05d}/{number:08d}{self.ending}"
            yield beam_files.FileMetadata(path, self.size_bytes, 7.5)

    def size(self, path: str) -> int:
        return self.size_bytes

    def exists(self, path: str) -> bool:
        return "*" not in path and path.endswith(self.ending)

    def open(self, path: str, *_: Any, **__: Any) -> Any:
        return Words()

    def _none(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    metadata = mkdirs = create = copy = rename = last_updated = checksum = delete = _none


def peak_bytes() -> int:
    """The most memory that this process, and none before it, ever had."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def request_of(kind: str, folder: Path) -> Any:
    from recordmill.pipelines.faces import parse
    from recordmill.pipelines.image_request import image_request
    from recordmill.pipelines.text_request import text_request
    from recordmill.transforms.images.image_spec import ImagesSpec
    from recordmill.transforms.text.text_spec import TextSpec

    flags = ["--input=listed://in/**", f"--output={folder}/ds", "--shard_size=1GB"]
    if kind == "images":
        return image_request(parse(ImagesSpec, [*flags, "--image_size=224"]))
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsome\nwords\n")
    flags += [f"--vocab_file={vocabulary}", "--dupe_factor=1"]
    return text_request(parse(TextSpec, flags))


def planned(kind: str, request: Any) -> dict[str, Any]:
    from recordmill.pipelines.planning.estimate import estimate
    from recordmill.pipelines.planning.image_planner import ImagePlanner
    from recordmill.pipelines.planning.plan_job import plan_job
    from recordmill.pipelines.planning.text_planner import TextPlanner

    if kind == "estimate":
        found = estimate(TextPlanner(request), workers=100)
        work_items = {step.name: step.work_items for step in found.steps}
        return {"work_items": work_items, "lines": dict(found.lines(100, 0.05))}
    planner = ImagePlanner(request) if kind == "images" else TextPlanner(request)
    plan = plan_job(planner, workers=100)
    sources = {name: plan.commit.sources[name] for name in ("bytes", "checksum")}
    return {"work_items": plan.stages.work_items, "sources": sources}


def main(kind: str, count: str, size: str, folder: str) -> None:
    import recordmill.pipelines.planning.estimate
    import recordmill.pipelines.planning.image_planner
    import recordmill.pipelines.planning.text_planner  # noqa: F401

    request = request_of(kind, Path(folder))
    Listed.files, Listed.size_bytes = int(count), int(size)
    Listed.ending = ".jpg" if kind == "images" else ".txt"
    before, began = peak_bytes(), time.process_time()
    found = planned(kind, request)
    found["grown_bytes"] = peak_bytes() - before
    found["seconds"] = time.process_time() - began
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
