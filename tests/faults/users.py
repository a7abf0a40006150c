"""Another user of the machine: what they can reach of a run, and what they can put in its way."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from .cases import Case, Shown, UntriedError, hold, is_clean, run_main
from .workshop import Workshop

_LOOK_SECONDS = 0.1  # a list of all processes takes 6 ms of a processor that the run needs
_LIMIT_SECONDS = 300  # for a program or two with workers: on a machine with other work, a minute
_PROBE = """
import os, socket, sys
reached = []
for folder, folders, files in os.walk(sys.argv[1]):
    for name in files + folders:
        path = os.path.join(folder, name)
        try:
            with socket.socket(socket.AF_UNIX) as each:
                each.connect(path)
            reached.append(path)
        except OSError:
            pass
        if os.access(path, os.W_OK):
            reached.append(path)
print("\\n".join(reached))
"""


def _as_nobody(line: list[str], **options: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("setpriv")
    if os.geteuid() or not program:
        raise UntriedError("another user's process takes root and setpriv")
    user = ["--reuid=65534", "--regid=65534", "--clear-groups"]
    return subprocess.run([program, *user, *line], capture_output=True, text=True, env=options)


@contextmanager
def _run_of_two(workshop: Workshop, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run with two workers, from the moment at which they are there."""
    line = [
        argument.replace("--direct_num_workers=1", "--direct_num_workers=2")
        for argument in workshop.arguments("text", folder / "ds")
    ]
    with open(folder / "shown", "wb") as shown:
        process = subprocess.Popen(
            [sys.executable, "-m", "recordmill.pipelines", *line], stdout=shown, stderr=shown
        )
    try:
        while process.poll() is None and len(_processes(process.pid)) < 6:
            time.sleep(_LOOK_SECONDS)
        yield process
        process.wait()
        is_clean(Shown(process.returncode, (folder / "shown").read_text()))
        hold(process.returncode == 0, (folder / "shown").read_text())
        workshop.is_whole("text", folder / "ds")
    finally:
        process.kill()
        process.wait()


def _processes(pid: int) -> list[psutil.Process]:
    try:
        driver = psutil.Process(pid)
        return [driver, *driver.children(recursive=True)]
    except psutil.Error:
        return []


def _no_port(workshop: Workshop) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        ports: set[str] = set()
        with _run_of_two(workshop, folder) as process:
            while process.poll() is None:
                for each in _processes(process.pid):
                    try:
                        found = each.net_connections(kind="inet")
                    except psutil.Error:
                        continue
                    ports |= {str(c.laddr) for c in found if c.status == psutil.CONN_LISTEN}
                time.sleep(_LOOK_SECONDS)
        hold(not ports, f"ports are open: {sorted(ports)}")

    return check


def _no_socket(workshop: Workshop) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        for each in (folder, folder / "t"):  # as /tmp, which all users may enter
            each.chmod(0o777)
        reached = ""
        with _run_of_two(workshop, folder) as process:
            while process.poll() is None:
                line = [sys.executable, "-I", "-S", "-c", _PROBE, str(folder / "t")]
                reached += _as_nobody(line, PATH=os.environ["PATH"]).stdout
        hold(not reached.strip(), f"another user reaches {reached}")

    return check


def _cache_of_another(workshop: Workshop) -> Callable[[Path], None]:
    """The folder of kernels below TMPDIR is another user's, with a file that would be run."""

    def check(folder: Path) -> None:
        planted = folder / "t" / f"recordmill-{os.geteuid()}"
        planted.mkdir()
        try:
            os.chown(planted, 65534, 65534)
        except PermissionError as error:
            raise UntriedError("another user's folder takes root") from error
        line = [sys.executable, "-m", "recordmill.pipelines"]
        environment = {**os.environ, "HOME": "/nonexistent", "XDG_CACHE_HOME": "/proc/nowhere"}
        shown = subprocess.run(
            [*line, *workshop.arguments("text", folder / "ds")],
            env=environment,
            capture_output=True,
            text=True,
        )
        is_clean(Shown(shown.returncode, shown.stderr))
        hold(shown.returncode == 0, shown.stderr)
        hold(not list(planted.iterdir()), "kernels lie in another user's folder")

    return check


def _lock_of_another(workshop: Workshop, how: str) -> Callable[[Path], None]:
    """What another user can put at every name that the run used below TMPDIR."""

    def check(folder: Path) -> None:
        temporary = folder / "t"
        victim = folder / "victim"
        victim.write_text("of the user")
        seen: set[str] = set()
        with _run_of_two(workshop, folder) as process:
            while process.poll() is None:
                seen |= set(os.listdir(temporary))
                time.sleep(0.01)
        shutil.rmtree(folder / "ds")
        for name in seen:
            path = temporary / name
            if how == "link":
                path.symlink_to(victim)
            else:
                path.touch()
            os.chown(path, 65534, 65534, follow_symlinks=False)
        shown = run_main(folder, workshop.arguments("text", folder / "ds"))
        is_clean(shown)
        hold(shown.status == 0, shown.last_line)
        hold(victim.read_text() == "of the user", "a planted link was written through")

    return check


def _modes(workshop: Workshop) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        open_folders: set[str] = set()
        with _run_of_two(workshop, folder) as process:
            while process.poll() is None:
                for each in (folder / "t").iterdir():
                    try:
                        status = each.lstat()
                    except OSError:
                        continue
                    if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o022:
                        open_folders.add(each.name)
                time.sleep(0.01)
        hold(not open_folders, f"folders that others may write to: {sorted(open_folders)}")

    return check


def users(workshop: Workshop) -> Iterator[Case]:
    """Yields all cases of this module."""
    kind = "a second user"
    yield Case(kind, "ports", _no_port(workshop), _LIMIT_SECONDS)
    yield Case(kind, "sockets", _no_socket(workshop), _LIMIT_SECONDS)
    yield Case(kind, "kernels", _cache_of_another(workshop), 600)
    yield Case(kind, "modes", _modes(workshop), _LIMIT_SECONDS)
    for how in ("link", "file"):
        yield Case(kind, f"lock-{how}", _lock_of_another(workshop, how), _LIMIT_SECONDS)
