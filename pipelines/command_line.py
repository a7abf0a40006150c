"""The command line: `recordmill COMMAND`, with a module of `commands/` for each command.

Exit status 0: done; 1: the run failed or went over the error budget; 2: wrong usage; 129, 130, 143:
stopped by a signal (130 by Ctrl-C); 141: the reader of the output has closed it. Errors that a user
can cause are one line on standard error.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version

from recordmill.pipelines.command_table import (
    MADE,
    PLAN_HELP,
    Call,
    Command,
    find_command,
    load,
    main_help,
)
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.error_text import describe_lack
from recordmill.pipelines.faces import (
    Given,
    Parser,
    aliases_of,
    full_help,
    page_help,
    refuse_unknown,
)
from recordmill.records.errors import RunError, UsageError, hide_passwords, visible
from recordmill.records.spec import Option
from recordmill.transforms.dataset.limits import check_limits
from recordmill.transforms.text.presets import presets_help


@contextmanager
def _loading() -> Iterator[None]:
    """Loads modules without garbage collection: what they make stays until the end anyway."""
    first = gc.isenabled() and "numba" not in sys.modules
    if first:
        gc.disable()
    try:
        yield
    finally:
        if first:
            gc.freeze()
            gc.enable()


_MOST_CHARACTERS = 3000  # of an error
_BROKEN_PIPE_STATUS = 128 + 13  # as a shell reports a process that SIGPIPE has killed
_ENGINE_THREAD = "stages"  # of `engines/local.py`


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(main_help())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"recordmill {version('recordmill')}")
        return 0
    if arguments[0] == "plan" and arguments[1:2] in (["-h"], ["--help"]):
        print(PLAN_HELP)
        return 0
    command, own = find_command(arguments)
    options = command.options()
    if shown := _help_asked_for(command, options, own):
        print(shown)
        return 0
    parser = Parser(prog=f"recordmill {command.name}")
    parser.add_options(options)
    values, rest = parser.parse_values(own)
    is_more_input = bool(rest) and not rest[0].startswith("-") and "input" not in options
    if is_more_input or not command.has_engine:
        refuse_unknown(rest, parser.known)
    elif rest:
        load("recordmill.pipelines.beam_internals:refuse_unknown")(rest, aliases_of(options))
    given = Given(values, beam=rest)
    try:
        if given.values.get("config"):
            with _loading():
                load("recordmill.pipelines.config_files:add_config")(given, options)
        call = Call(command=command, given=given)
        call.check()
        if command.has_engine:  # the others load no kernels
            check_limits(call.workers, usable_cores(), is_job=command.runs_stages)
        with call.preloading():
            with _loading():
                load(command.function)
            return call.run()
    except (UsageError, RunError) as error:
        error.args = (given.worded(str(error)), *error.args[1:])
        raise


def _help_asked_for(command: Command, options: Mapping[str, Option], own: list[str]) -> str:
    """Returns the help that a command line asks for, "" if it asks for none."""
    asked = set(own[: own.index("--") if "--" in own else None])
    if "preset" in options and "--help-presets" in asked:
        return presets_help()
    has_page = any(option.declared.short is not None for option in options.values())
    if "--help-all" in asked or ({"-h", "--help"} & asked and not has_page):
        return full_help(command.page, command.description, options, engine=command.has_engine)
    if not {"-h", "--help"} & asked:
        return ""
    if command.name.startswith("plan "):  # it runs here, and writes nothing
        options = {n: o for n, o in options.items() if o.group not in ("engine", "output")}
    return page_help(command.page, options)


class _TerminatedError(KeyboardInterrupt):
    """A signal other than Ctrl-C's stops the process."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Turns the signals of a scheduler and of a closed terminal into what Ctrl-C raises."""
    changed: list[signal.Signals] = []

    def terminate(number: int, frame: object) -> None:
        for each in changed:  # a second signal must not disturb the clean-up
            signal.signal(each, signal.SIG_IGN)
        raise _TerminatedError(number)

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            each = getattr(signal, name, None)
            if each and signal.getsignal(each) == signal.SIG_DFL:  # nohup wants it ignored
                signal.signal(each, terminate)
                changed.append(each)
    try:
        yield
    finally:
        for each in changed:
            signal.signal(each, signal.SIG_DFL)


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    # At the end of a process Python would look for garbage among all that libraries have made.
    atexit.register(gc.freeze)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it
    try:
        with _signals_interrupt(), _flushed_output():
            return _run(sys.argv[1:] if arguments is None else arguments)
    except UsageError as error:
        _print_error(error)
        return 2
    except RunError as error:
        _print_error(error)
        return _end(1, at_once=error.leaves_threads)
    except BrokenPipeError:
        return _end(_BROKEN_PIPE_STATUS)
    except OutputError as error:
        _print_error(error)
        return _end(1)
    except (MemoryError, OSError, RuntimeError, ImportError) as error:
        lack = describe_lack(error)
        if not lack:
            raise
        _print_error(lack)
        return _end(1)
    except KeyboardInterrupt as error:
        given = sys.argv[1:] if arguments is None else arguments
        again = "; run the same command again to go on" if given and given[0] in MADE else ""
        said = "terminated" if isinstance(error, _TerminatedError) else "interrupted"
        _print_error(str(error) or f"{said}{again}")
        return _end(error.status if isinstance(error, _TerminatedError) else 130)


class OutputError(Exception):
    """Standard output cannot be written."""


@contextmanager
def _flushed_output() -> Iterator[None]:
    """Writes out what was printed while errors can still be handled, also before an exit.

    Raises:
      BrokenPipeError: the reader of the output has closed it, as `head` does.
      OutputError: it cannot be written for another reason, such as a full disk.
    """
    try:
        yield
        _flush()
    except SystemExit:  # argparse has printed its help
        with suppress(BrokenPipeError):
            _flush()
        raise
    except BrokenPipeError:
        _discard_output()
        raise
    except OSError as error:
        if not _is_output_full():
            raise
        raise _output_error(error) from error


def _output_error(error: OSError) -> OutputError:
    return OutputError(
        f"standard output cannot be written: {error.strerror}; run the same command "
        "again with a place for what it prints"
    )


def _flush() -> None:
    """Flushes standard output; what cannot be written is discarded.

    Raises:
      BrokenPipeError, OutputError: see `_flushed_output`.
    """
    if sys.stdout is None:  # closed by whoever started us
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        raise
    except OSError as error:
        _discard_output()
        raise _output_error(error) from error


def _is_output_full() -> bool:
    """Tells whether an error was standard output's: it is then not written to again."""
    if sys.stdout is None:
        return False
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except (OSError, ValueError):
        _discard_output()
        return True
    return False


def _discard_output() -> None:
    """Lets the interpreter flush standard output to nowhere when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _print_error(error: object) -> None:
    with suppress(OSError):  # the terminal may be closed
        print(f"recordmill: {_shortened(visible(hide_passwords(str(error))))}", file=sys.stderr)


def _shortened(text: str) -> str:
    """Returns a message without its middle where it repeats what an input holds at length."""
    left_out = len(text) - _MOST_CHARACTERS
    if left_out <= 0:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]} [… {left_out} characters …] {text[-half:]}"


def _end(status: int, *, at_once: bool = False) -> int:
    """Returns the status, or exits at once where threads of an engine still wait for workers."""
    if at_once or any(thread.name == _ENGINE_THREAD for thread in threading.enumerate()):
        from recordmill.pipelines.engines.watchdog import exit_now

        exit_now(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
