"""Turn the errors of engines into one line."""

from __future__ import annotations

import re
import sys

_STAGE_NAME = re.compile(r" \[while running '[^']*'\]")


def without_stage_names(text: str) -> str:
    """Removes what Beam appends to the message of an error: the name of the stage."""
    return _STAGE_NAME.sub("", text)


def one_line(error: BaseException) -> str:
    """Returns what went wrong, from an engine's error with all its tracebacks."""
    text = without_stage_names(str(error))
    grpc = sys.modules.get("grpc")  # without it there is no error of it
    if grpc and isinstance(error, grpc.Call):  # whose text is a record of many lines
        text = f"{error.code().name}: {error.details()}"
    if "No space left on device" in text:
        return "no space left on the device; free some, or choose another --temp_dir"
    # REST services quote the line ends of a trace.
    lines = [line.strip() for line in text.replace("\\n", "\n").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception): ", line)]
    return (errors or lines or [type(error).__name__])[-1].removeprefix("Caused by: ")
