"""Turn the errors of engines into one line."""

from __future__ import annotations

import errno
import re
import sys

from recordmill.transforms.dataset.limits import TOO_FEW_FILES, TOO_FEW_THREADS, TOO_LITTLE_MEMORY

_NO_SPACE = "no space left on the device; free some, or choose another --temp_dir"
# Errors of this process: by their number, or a type and a part of its text.
_NUMBERS = {
    errno.ENOSPC: _NO_SPACE,
    errno.EMFILE: TOO_FEW_FILES,
    errno.ENFILE: TOO_FEW_FILES,
    errno.EAGAIN: TOO_FEW_THREADS,  # of fork
    errno.ENOMEM: TOO_LITTLE_MEMORY,
}
_TEXTS = (
    (ImportError, "failed to map segment from shared object", TOO_LITTLE_MEMORY),
    (OSError, "Could not find/load shared object file 'libllvmlite", TOO_LITTLE_MEMORY),
)
# The last line of an engine's error, whose workers may be on other machines -> what to do there.
_LAST_LINES = (
    (rf"OSError: \[Errno {errno.ENOSPC}\]", "free some space, or choose another --temp_dir"),
    (rf"OSError: \[Errno ({errno.EMFILE}|{errno.ENFILE})\]", "let workers open more files"),
    (rf"BlockingIOError: \[Errno {errno.EAGAIN}\]", "let workers begin more processes"),
    (r"RuntimeError: can't start new thread$", "let workers begin more threads"),
    (
        rf"MemoryError(:|$)|OSError: \[Errno {errno.ENOMEM}\]",
        "give workers more memory, or use fewer on a machine",
    ),
)
_STAGE_NAME = re.compile(r" \[while running '[^']*'\]")


def without_stage_names(text: str) -> str:
    """Removes what Beam appends to the message of an error: the name of the stage."""
    return _STAGE_NAME.sub("", text)


def describe_lack(error: BaseException) -> str:
    """Returns what to do where space, files, threads or memory were refused; "" for others."""
    if isinstance(error, MemoryError):
        return TOO_LITTLE_MEMORY
    if type(error) is RuntimeError and str(error) == "can't start new thread":
        return TOO_FEW_THREADS
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return _NUMBERS[error.errno]
    found = (line for kind, part, line in _TEXTS if isinstance(error, kind) and part in str(error))
    return next(found, "")


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
    errors = [
        line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception)(: |$)", line)
    ]
    last = (errors or lines or [type(error).__name__])[-1].removeprefix("Caused by: ")
    advice = next((what for start, what in _LAST_LINES if re.match(start, last)), "")
    return f"{last}; {advice}" if advice else last
