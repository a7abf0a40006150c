"""Commands of the documentation that name other machines, run against stand-ins of these.

Buckets are those of the emulator, Dataflow is the stand-in of its tests, Flink and Prism are those
of `stand_ins.py`. A command keeps every flag that it has; names of machines become addresses, and
flags that name a stand-in are added.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import doc_commands
import pytest

from recordmill.pipelines import templates
from recordmill.pipelines.command_line import main
from recordmill.transforms.storage import files

from ..pipelines.engines.dataflow_service import DataflowService
from .stand_ins import FlinkStandIn, write_docker

PRISM = "/usr/local/bin/prism"  # as the documentation has it


@dataclass(frozen=True)
class StandIns:
    """What takes the place of other machines.

    Attributes:
      flink: a cluster with its job server.
      dataflow: the service.
      programs: a folder in PATH, for programs.
    """

    flink: FlinkStandIn
    dataflow: DataflowService
    programs: Path

    def run(self, code: str) -> None:
        """Runs each command as far as stand-ins go; the others are checked.

        Raises:
          AssertionError: a command has failed.
        """
        for words in doc_commands.commands(code):
            doc_commands.check(words)
            if words[0] == "recordmill":
                self._recordmill(words[1:])
            elif words[:2] == ["make", "template"]:
                self._make_template(dict(word.split("=", 1) for word in words[2:]))
            elif words[0] == "gcloud" and "flex-template" in words:
                self._launch_template(words)

    def _recordmill(self, words: list[str]) -> None:
        words = [self._with_addresses(word) for word in words]
        flags = dict(word.split("=", 1) for word in words if "=" in word)
        runner = flags.get("--runner", "direct")
        before = self.flink.submitted(), len(self.dataflow.jobs)
        words += {
            "direct": ["--direct_num_workers=1"] if words[0] in doc_commands.JOBS else [],
            "flink": self._job_server(flags),
            "prism": self._job_server(flags),
            "dataflow": [f"--dataflow_endpoint={self.dataflow.url}"],
        }[runner]
        assert main(words) == 0, words
        submitted = self.flink.submitted() - before[0], len(self.dataflow.jobs) - before[1]
        assert submitted == (runner in ("flink", "prism"), runner == "dataflow"), words
        if "--output" in flags:
            assert files.exists(f"{flags['--output']}/_SUCCESS"), words

    def _with_addresses(self, word: str) -> str:
        for name, address in {
            "HOST:8081": self.flink.master,
            "localhost:8081": self.flink.master,
            "localhost:8099": self.flink.job_endpoint,
            PRISM: str(self.programs / "prism"),
            "$PWD": str(Path.cwd()),
        }.items():
            word = word.replace(name, address)
        return word

    def _job_server(self, flags: dict[str, str]) -> list[str]:
        given = "--job_endpoint" in flags
        return [] if given else [f"--job_endpoint={self.flink.job_endpoint}"]

    def _make_template(self, variables: dict[str, str]) -> None:
        image, bucket = variables["IMAGE"], variables["BUCKET"]
        assert templates.main([f"--image={image}", f"--folder={bucket}"]) == 0

    def _launch_template(self, words: list[str]) -> None:
        """Does what the launcher of a template does with what gcloud is given."""
        flags = {w.partition("=")[0]: w.partition("=")[2] for w in words if w.startswith("--")}
        template = flags["--template-file-gcs-location"]
        assert files.exists(template), "make template writes it"
        job_object = f"{flags['--temp-location']}/job_object"
        arguments = [
            *(f"--{part}" for part in flags["--parameters"].split(",")),
            f"--region={flags['--region']}", f"--temp_location={flags['--temp-location']}",
            "--project=my-project", "--runner=DataflowRunner", f"--template_location={job_object}",
            "--sdk_container_image=image", "--labels={}",
        ]  # fmt: skip
        name = template.rpartition("recordmill-")[2].removesuffix(".json")
        assert templates.launch(name, arguments) == 0
        assert files.exists(job_object)


def make_stand_ins(
    folder: Path, flink: FlinkStandIn, dataflow: DataflowService, patch: pytest.MonkeyPatch
) -> StandIns:
    """Makes the stand-ins of a test, whose programs come first in PATH."""
    programs = folder / "programs"
    programs.mkdir()
    write_docker(programs)
    (programs / "prism").touch(0o755)
    patch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return StandIns(flink, dataflow, programs)
