"""A headless Chromium that tests share, driven over a pipe by the DevTools protocol.

Pages are opened from files with the network off, and say what they asked for, what their scripts
reported, and how they look at a width, in light or dark colours.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

_SECONDS = 60
# Chromium reads requests from descriptor 3, and answers on 4.
_START = """
import fcntl, os, sys
requests, answers = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(requests, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
AXE = "axe-core@4.14.1"


def find_chromium() -> str | None:
    """Returns the program, None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """A running Chromium.

    Args:
      program: its path.
      profile: an empty folder.
    """

    def __init__(self, program: str, profile: Path) -> None:
        from_browser, answers = os.pipe()
        requests, to_browser = os.pipe()
        line = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--remote-debugging-pipe", f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking",
            "--no-first-run", "--hide-scrollbars", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(requests), str(answers), *line],
            pass_fds=(requests, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(requests)
        os.close(answers)
        self._in, self._out = from_browser, to_browser
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Sends a command, and returns its answer; events meanwhile go to `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._out, content) :]
        until = monotonic() + _SECONDS
        while True:
            found = self._receive(until)
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def wait_for(self, method: str, session: str) -> dict[str, Any]:
        """Returns the next event of a name."""
        until = monotonic() + _SECONDS
        while True:
            for event in self.events:
                if event.get("method") == method and event.get("sessionId") == session:
                    return event
            self.events.append(self._receive(until))

    def _receive(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            block = os.read(self._in, 1 << 20)
            if not block:
                raise RuntimeError(f"Chromium ended with status {self._process.wait()}")
            self._buffer += block
        message, _, self._buffer = self._buffer.partition(b"\0")
        content: dict[str, Any] = json.loads(message)
        return content

    def close(self) -> None:
        """Ends the browser."""
        for descriptor in (self._out, self._in):
            os.close(descriptor)
        self._process.terminate()
        self._process.wait(_SECONDS)


@dataclass
class Page:
    """An open page.

    Attributes:
      browser: that shows it.
      session: of the protocol.
      errors: what scripts and the console reported.
      requested: the addresses that it asked for beside its own.
    """

    browser: Browser
    session: str
    errors: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command for this page."""
        return self.browser.call(method, self.session, **parameters)

    def evaluate(self, script: str) -> Any:
        """Returns the value of an expression, or of the promise that it is."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Writes a picture of the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))


def open_page(browser: Browser, path: Path, *, width: int, dark: bool = False) -> Page:
    """Opens a file at a width in pixels, and waits until it has loaded."""
    browser.events.clear()
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
    page = Page(browser, attached["sessionId"])
    for domain in ("Page", "Runtime", "Log", "Network"):
        page.call(f"{domain}.enable")
    page.call("Network.emulateNetworkConditions", offline=True, latency=0,
              downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
              deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.call("Emulation.setEmulatedMedia", features=[scheme])
    url = path.resolve().as_uri()
    browser.events.clear()
    page.call("Page.navigate", url=url)
    browser.wait_for("Page.loadEventFired", page.session)
    for event in browser.events:
        found = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                page.errors.append(json.dumps(found))
            case "Network.requestWillBeSent":
                asked = found["request"]["url"]
                if asked != url and not asked.startswith("data:"):
                    page.requested.append(asked)
    return page


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for all tests of the session."""
    program = find_chromium()
    if not program:
        pytest.skip("there is no Chromium on this machine")
    running = Browser(program, tmp_path_factory.mktemp("chromium"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Page], Sequence[dict[str, Any]]]:
    """Returns what finds the serious violations of a page, by axe-core, which npm installs."""
    npm = shutil.which("npm")
    if not npm:
        pytest.skip("there is no npm on this machine, which installs axe-core")
    folder = tmp_path_factory.mktemp("axe")
    line = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    done = subprocess.run([*line, AXE], capture_output=True, text=True, timeout=120)
    script = folder / "node_modules/axe-core/axe.min.js"
    if done.returncode or not script.exists():
        pytest.skip(f"npm cannot install axe-core: {done.stderr.strip().splitlines()[-1:]}")
    source = script.read_text(encoding="utf-8")

    def violations(page: Page) -> Sequence[dict[str, Any]]:
        page.evaluate(source + "; undefined")
        found = page.evaluate("axe.run({resultTypes: ['violations']}).then(r => r.violations)")
        return [v for v in found if v["impact"] in ("serious", "critical")]

    return violations
