"""Writes requirements.lock from pip's report of what a fresh install brings: versions and hashes.

    pip install --dry-run --ignore-installed --report=report.json '.[gcp,sql]'
    python .ci/write_lock.py report.json > requirements.lock

Run it with the image's Python on its platform: the hash is that of the file that pip takes there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_HEAD = "# What the image has, exactly: Python 3.11 on Linux x86_64. Made by `make lock`.\n"


def lock(report: dict[str, Any], *, without: str = "recordmill") -> str:
    """Returns the lock of a report of pip, without one package, sorted by name.

    Raises:
      ValueError: a package comes without a hash.
    """
    lines: dict[str, str] = {}
    for each in report["install"]:
        name, version = each["metadata"]["name"].lower(), each["metadata"]["version"]
        if name == without:
            continue
        hashes = each["download_info"].get("archive_info", {}).get("hashes", {})
        if "sha256" not in hashes:
            raise ValueError(f"pip reports no sha256 of {name}=={version}")
        name = name.replace("_", "-")
        lines[name] = f"{name}=={version} \\\n    --hash=sha256:{hashes['sha256']}\n"
    return _HEAD + "".join(lines[name] for name in sorted(lines))


if __name__ == "__main__":
    sys.stdout.write(lock(json.loads(Path(sys.argv[1]).read_bytes())))
