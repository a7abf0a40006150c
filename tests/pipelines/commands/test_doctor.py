"""`recordmill doctor` finds what is missing, and says what to do."""

from __future__ import annotations

import json
import os
import string
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.commands import compile_kernels, doctor


def test_all_is_well_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["versions"]) == {"recordmill", "apache-beam", "python"}
    assert all(found["versions"].values())


def test_every_requirement_is_looked_at() -> None:
    assert {"apache-beam", "numpy", "tensorflow", "tokenizers", "apache-beam[gcp]"} <= {
        finding.what for finding in doctor.check_packages()
    }
    assert "hypothesis" not in {finding.what for finding in doctor.check_packages()}


def test_missing_and_wrong_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ['numpy>=99; extra == "beam"', "no-such-package>=1"]
    monkeypatch.setattr(
        doctor, "requires", lambda name: texts if name == "recordmill" else requires(name)
    )
    missing, wrong = doctor.check_packages()
    assert missing.what == "no-such-package"
    assert missing.found == ""
    assert missing.problem == "needed >=1 for the tf.data reader: pip install 'recordmill'"
    assert wrong.what == "numpy"
    assert wrong.problem.startswith("needed >=99 for text, images, vocab")
    assert wrong.problem.endswith("pip install 'recordmill[beam]'")


def test_cluster_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--flink_master=localhost:9"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("! cluster localhost:9")
    assert "does not answer" in last


def test_image_of_another_release() -> None:
    here = {"recordmill": "1.2.0", "apache-beam": "2.77.0", "python": "3.11.7"}
    same = here | {"python": "3.11.2"}
    assert doctor.compare_versions("image", same, here).problem == ""
    other = here | {"apache-beam": "2.76.0", "python": "3.12.1"}
    problem = doctor.compare_versions("image", other, here).problem
    assert problem.startswith("apache-beam 2.76.0 there and 2.77.0 here, python 3.12.1 there")


@pytest.mark.slow
def test_what_is_compiled_is_what_jobs_of_all_kinds_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, whose kernels are compiled: each job ends well."""
    done = list[str]()

    def run_here(*arguments: str) -> None:
        assert main(list(arguments)) == 0
        done.append(arguments[0])

    monkeypatch.setattr(compile_kernels, "_run", run_here)
    assert main(["doctor", "--compile"]) == 0
    assert {"text", "images", "examples", "verify"} == set(done)
    assert "compiling: text" in capsys.readouterr().out


_ONE_KIND = """
import sys
from itertools import islice
from recordmill.pipelines.command_line import main
from recordmill.pipelines.commands import compile_kernels
jobs = compile_kernels._jobs
compile_kernels._jobs = lambda folder: islice(jobs(folder), 1)
sys.exit(main(["doctor", "--compile"]))
"""


@pytest.mark.slow
def test_compiled_kernels_are_shared_with_all_users(tmp_path: Path) -> None:
    kernels, cache, text = tmp_path / "kernels", tmp_path / "cache", tmp_path / "text.txt"
    text.write_text("A sentence. Another one.\n\nA second document.\n")
    vocabulary = tmp_path / "vocab.txt"
    letters = string.ascii_lowercase
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    vocabulary.write_text("\n".join(tokens))
    environment = os.environ | {
        "RECORDMILL_KERNELS": str(kernels), "XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": ""
    }  # fmt: skip
    recordmill = [sys.executable, "-m", "recordmill.pipelines"]
    done = subprocess.run(
        [sys.executable, "-c", _ONE_KIND], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"kernels are kept in {kernels}/" in done.stdout
    assert all(path.stat().st_mode & 0o777 == 0o755 for path in kernels.rglob("*/"))
    line = [
        *recordmill, "text", f"--input={text}", f"--output={tmp_path}/out", "--task=bert",
        f"--vocab_file={vocabulary}",
    ]  # fmt: skip
    before = {path for path in kernels.rglob("*") if path.is_file()}
    subprocess.run(line, env=environment, check=True, capture_output=True)
    assert {path for path in kernels.rglob("*") if path.is_file()} == before
