"""A real Flink cluster on one machine, without Docker: job manager, task managers, Beam job server.

    python examples/flink/cluster.py start     # builds the jar the first time: a minute or two
    recordmill text … --runner=flink --flink_master=localhost:8081 --job_endpoint=localhost:8099
    python examples/flink/cluster.py status
    python examples/flink/cluster.py revive    # starts task managers again that were killed
    python examples/flink/cluster.py stop

Needs a JDK (11 to 21) and Maven. Everything lies below build/flink of the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import http.client
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build/flink"
JAR = BUILD / "target/flink.jar"

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
JOB_SERVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
MEMORY = "org.apache.flink.runtime.util.bash.BashJavaUtils"

# What Flink reaches into of Java 17's inner parts: its own distribution sets the same.
OPENS = [
    *(f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in ["sun.net.util"]),
    *(
        f"--add-opens=java.base/{name}=ALL-UNNAMED"
        for name in [
            "java.io", "java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text",
            "java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
            "java.util.concurrent.locks", "sun.nio.ch",
        ]
    ),
]  # fmt: skip


class ClusterError(Exception):
    """What a user can fix, in one line."""


def conf(folder: Path, *, ports: dict[str, int], slots: int, more: list[str]) -> str:
    """Returns Flink's config.yaml; `more` are settings such as "key=value"."""
    settings: dict[str, Any] = {
        "jobmanager.rpc.address": "localhost",
        "jobmanager.rpc.port": ports["rpc"],
        "rest.address": "localhost",
        "rest.port": ports["rest"],
        "taskmanager.numberOfTaskSlots": slots,
        "taskmanager.memory.process.size": "1728m",
        "taskmanager.memory.network.max": "128m",
        # Without a strategy, which is Flink's default, a job ends with the first worker that dies.
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 10,
        "restart-strategy.fixed-delay.delay": "2 s",
        "heartbeat.interval": 2000,
        "heartbeat.timeout": 8000,
        "io.tmp.dirs": folder / "tmp",
        "blob.storage.directory": folder / "tmp",
        "web.tmpdir": folder / "tmp",
    }
    settings.update(setting.split("=", 1) for setting in more)
    return "".join(f"{name}: {value}\n" for name, value in settings.items())


def find_tool(name: str, package: str) -> str:
    """Returns the path of a program of the JDK or Maven."""
    home = os.environ.get("JAVA_HOME")
    path = (home and shutil.which(name, path=os.path.join(home, "bin"))) or shutil.which(name)
    if not path:
        raise ClusterError(f"{name} is needed and not in PATH; install {package}")
    return path


def find_java() -> str:
    """Returns the path of java, of a release that Flink runs on."""
    java = find_tool("java", "a JDK, 11 to 21, such as openjdk-17-jdk")
    text = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    if not match or not 11 <= int(match[1]) <= 21:
        raise ClusterError(f"Flink needs Java 11 to 21, and {java} is: {text.splitlines()[:1]}")
    return java


def build() -> None:
    """Makes the jar from Maven's packages, where it is not there yet."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pom = HERE / "pom.xml"
        if JAR.exists() and JAR.stat().st_mtime > pom.stat().st_mtime:
            return
        find_java()
        maven = find_tool("mvn", "Apache Maven")
        print(f"building {JAR}: 170 packages, 150 MB the first time", flush=True)
        command = [
            maven, "-B", "-q", "-f", str(pom), f"-Dmaven.repo.local={BUILD}/maven",
            f"-Dbuild.folder={BUILD}/target", "package",
        ]  # fmt: skip
        log = BUILD / "maven.log"
        for _ in range(2):  # a download that broke off goes on
            with open(log, "w") as output:
                if subprocess.run(command, stdout=output, stderr=output).returncode == 0:
                    return
        errors = [line for line in log.read_text().splitlines() if "ERROR" in line]
        raise ClusterError(f"Maven failed, see {log}: {(errors or ['no reason given'])[0]}")


def free_port() -> int:
    """Returns a port that nothing listens on, of those that no system gives away by itself.

    One of a system's own choice, by binding port 0, may be another program's before Java binds it.
    """
    for port in random.sample(range(20_000, 32_768), 1000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("localhost", port))
            return port
    raise ClusterError("no port from 20000 to 32767 is free")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("localhost", port)) == 0


class Cluster:
    """The processes whose state lies in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.state_path = self.folder / "cluster.json"
        self.pids: dict[str, int] = {}
        self.ports: dict[str, int] = {}
        if self.state_path.exists():
            state = json.loads(self.state_path.read_text())
            self.pids, self.ports = state["pids"], state["ports"]

    def is_alive(self, name: str) -> bool:
        """Returns whether a process runs, and is still ours: process ids are used again."""
        show = ["ps", "-ww", "-o", "command=", "-p", str(self.pids[name])]
        return str(self.folder) in subprocess.run(show, capture_output=True, text=True).stdout

    def alive(self) -> list[str]:
        return [name for name in self.pids if self.is_alive(name)]

    def overview(self) -> dict[str, Any]:
        """Returns what the cluster says of itself, nothing where it does not answer."""
        url = f"http://localhost:{self.ports.get('rest', 0)}/overview"
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return dict(json.load(response))
        except (OSError, ValueError, http.client.HTTPException):
            return {}

    def _java(self, name: str, jvm: list[str], main: str, arguments: list[str]) -> None:
        command = [
            find_java(), *OPENS, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *jvm,
            f"-Djava.io.tmpdir={self.folder}/tmp", "-cp", str(JAR), main, *arguments,
        ]  # fmt: skip
        with open(self.folder / f"{name}.log", "a") as log:  # behind what one that ended has told
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        self.pids[name] = process.pid
        self.state_path.write_text(json.dumps({"pids": self.pids, "ports": self.ports}))

    def _task_manager_memory(self) -> tuple[list[str], list[str]]:
        """Returns Flink's own split of a task manager's memory: flags of Java, and settings."""
        command = [
            find_java(), "-cp", str(JAR), MEMORY, "GET_TM_RESOURCE_PARAMS", "--configDir",
            str(self.folder),
        ]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True)
        found = [
            line.partition("BASH_JAVA_UTILS_EXEC_RESULT:")[2]
            for line in run.stdout.splitlines()
            if line.startswith("BASH_JAVA_UTILS_EXEC_RESULT:")
        ]
        if len(found) != 2:
            raise ClusterError(
                f"Flink does not tell its memory: {(run.stdout + run.stderr)[-300:]}"
            )
        return shlex.split(found[0]), shlex.split(found[1])

    def start(
        self, *, ports: dict[str, int], task_managers: int, slots: int, more: list[str]
    ) -> None:
        """Starts all processes, and returns when they take jobs."""
        if self.alive():
            raise ClusterError(f"a cluster runs already: {', '.join(self.alive())}; stop it first")
        ports = {name: port or free_port() for name, port in {"rpc": 0, **ports}.items()}
        for name, port in ports.items():
            if is_open(port):
                raise ClusterError(f"port {port} is taken; choose another --{name}_port, or 0")
        build()
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "tmp").mkdir(parents=True)
        settings = conf(self.folder, ports=ports, slots=slots, more=more)
        (self.folder / "config.yaml").write_text(settings)
        self.pids, self.ports = {}, ports
        where = ["--configDir", str(self.folder)]
        try:
            self._java("job-manager", ["-Xmx640m"], JOB_MANAGER, where)
            server = [
                f"--flink-master=localhost:{ports['rest']}", f"--job-port={ports['job']}",
                "--artifact-port=0", "--expansion-port=0",
                f"--artifacts-dir={self.folder}/artifacts",
            ]  # fmt: skip
            self._java("job-server", ["-Xmx512m"], JOB_SERVER, server)
            flags, memory = self._task_manager_memory()
            for number in range(task_managers):
                self._java(f"task-manager-{number}", flags, TASK_MANAGER, [*where, *memory])
            self._await(slots * task_managers)
        except BaseException:
            self.stop()
            raise

    def revive(self) -> None:
        """Starts task managers again that were killed, and returns when they take jobs."""
        managers = [name for name in self.pids if name.startswith("task-manager")]
        for name in set(managers) - set(self.alive()):
            flags, memory = self._task_manager_memory()
            self._java(name, flags, TASK_MANAGER, ["--configDir", str(self.folder), *memory])
        self._await(self._slots() * len(managers))

    def _slots(self) -> int:
        settings = (self.folder / "config.yaml").read_text()
        return int(re.findall(r"^taskmanager.numberOfTaskSlots: (\d+)$", settings, re.M)[0])

    def _await(self, slots: int, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while self.overview().get("slots-total") != slots or not is_open(self.ports["job"]):
            dead = set(self.pids) - set(self.alive())
            if dead or time.monotonic() > end:
                name = min(dead, default="job-manager")
                why = "ended" if dead else f"is not ready after {seconds:.0f} s"
                raise ClusterError(f"{name} {why}; see {self.folder / name}.log")
            time.sleep(0.3)

    def stop(self) -> None:
        """Ends all processes, and the workers of theirs."""
        for sign, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            for name in self.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pids[name], sign)
            end = time.monotonic() + seconds
            while self.alive() and time.monotonic() < end:
                time.sleep(0.2)
        self.state_path.unlink(missing_ok=True)

    def status(self) -> int:
        """Prints what runs; returns 0 where all of it does."""
        alive = self.alive()
        for name, pid in self.pids.items():
            print(f"{name:<16} {pid:>8} {'runs' if name in alive else 'ended'}")
        overview = self.overview()
        if not overview:
            print("no cluster runs")
            return 1
        print(
            f"Flink {overview['flink-version']}: {overview['taskmanagers']} task managers, "
            f"{overview['slots-available']} of {overview['slots-total']} slots free, "
            f"{overview['jobs-running']} jobs; dashboard http://localhost:{self.ports['rest']}"
        )
        return 0 if len(alive) == len(self.pids) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("build", "start", "status", "stop", "revive"))
    parser.add_argument("--folder", type=Path, default=BUILD / "cluster", help="Logs and state.")
    parser.add_argument("--task_managers", type=int, default=2)
    parser.add_argument("--slots", type=int, default=2, help="Of each task manager.")
    parser.add_argument(
        "--rest_port", type=int, default=8081, help="Of the dashboard; 0: a free one."
    )
    parser.add_argument(
        "--job_port", type=int, default=8099, help="Of the job server; 0: a free one."
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="Of Flink's configuration."
    )
    options = parser.parse_args()
    cluster = Cluster(options.folder)
    try:
        if options.command == "build":
            build()
        elif options.command == "status":
            return cluster.status()
        elif options.command == "stop":
            cluster.stop()
        elif options.command == "revive":
            cluster.revive()
        else:
            ports = {"rest": options.rest_port, "job": options.job_port}
            cluster.start(
                ports=ports,
                task_managers=options.task_managers,
                slots=options.slots,
                more=options.set,
            )
            cluster.status()
            print(
                f"--runner=flink --flink_master=localhost:{cluster.ports['rest']} "
                f"--job_endpoint=localhost:{cluster.ports['job']}"
            )
    except ClusterError as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
