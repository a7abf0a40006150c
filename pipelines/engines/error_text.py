"""Turn the errors of engines into one line."""

from __future__ import annotations

import re
import sys

from recordmill.transforms.dataset.limits import TOO_FEW_FILES, TOO_FEW_THREADS, TOO_LITTLE_MEMORY

# What the text of an error has -> what to say.
_LACKS = {
    "No space left on device": (
        "no space left on the device; free some, or choose another --temp_dir"
    ),
    "Too many open files": TOO_FEW_FILES,
    "can't start new thread": TOO_FEW_THREADS,
    "Resource temporarily unavailable": TOO_FEW_THREADS,  # of fork
    "MemoryError": TOO_LITTLE_MEMORY,
    "Cannot allocate memory": TOO_LITTLE_MEMORY,
    "failed to map segment from shared object": TOO_LITTLE_MEMORY,
    "Could not find/load shared object file 'libllvmlite": TOO_LITTLE_MEMORY,
}
_STAGE_NAME = re.compile(r" \[while running '[^']*'\]")


def without_stage_names(text: str) -> str:
    """Removes what Beam appends to the message of an error: the name of the stage."""
    return _STAGE_NAME.sub("", text)


def describe_lack(error: BaseException) -> str:
    """Returns what to do where space, files, threads or memory were refused; "" for others."""
    text = f"{type(error).__name__}: {error}"
    return next((line for part, line in _LACKS.items() if part in text), "")


def one_line(error: BaseException) -> str:
    """Returns what went wrong, from an engine's error with all its tracebacks."""
    text = without_stage_names(str(error))
    grpc = sys.modules.get("grpc")  # without it there is no error of it
    if grpc and isinstance(error, grpc.Call):  # whose text is a record of many lines
        text = f"{error.code().name}: {error.details()}"
    if lack := describe_lack(error):
        return lack
    # REST services quote the line ends of a trace.
    lines = [line.strip() for line in text.replace("\\n", "\n").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception): ", line)]
    return (errors or lines or [type(error).__name__])[-1].removeprefix("Caused by: ")
