"""The command line: `recordmill text | images | vocab | plan | verify | doctor`.

Exit status 0: done; 1: the run failed or went over the error budget; 2: wrong usage; 130, 143:
ended by Ctrl-C or a signal. Errors that a user can cause are one line on standard error.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from recordmill.records.arguments import Parser
from recordmill.records.errors import RunError, UsageError, one_of


@contextmanager
def _loading() -> Iterator[None]:
    """Loads Beam without looking for garbage among what it makes, which stays to the end anyway."""
    first = gc.isenabled() and "apache_beam" not in sys.modules
    if first:
        gc.disable()
    try:
        yield
    finally:
        if first:
            gc.freeze()
            gc.enable()


def _text(arguments: list[str]) -> int:
    with _loading():
        from recordmill.pipelines.text_options import add_text_arguments, text_request
        from recordmill.pipelines.text_planning import TextPlanner

    parser = _job_parser("text", "Raw text to masked, sharded TFRecords.")
    add_text_arguments(parser)
    return _run_job(parser, arguments, lambda options: TextPlanner(text_request(options)))


def _images(arguments: list[str]) -> int:
    with _loading():
        from recordmill.pipelines.image_options import add_image_arguments, image_request
        from recordmill.pipelines.image_planning import ImagePlanner

    parser = _job_parser("images", "Images to sharded TFRecords.")
    add_image_arguments(parser)
    return _run_job(parser, arguments, lambda options: ImagePlanner(image_request(options)))


def _job_parser(command: str, what: str) -> Parser:
    description = f"{what} Beam's own flags pass through."
    return Parser(prog=f"recordmill {command}", allow_abbrev=False, description=description)


def _run_job(parser: Parser, arguments: list[str], planner_of: Callable[[Any], Any]) -> int:
    from recordmill.pipelines.engines import parse_arguments
    from recordmill.pipelines.launch import plan_and_run

    options, flags = parse_arguments(parser, arguments)
    plan_and_run(planner_of(options), options, flags)
    return 0


def _vocab(arguments: list[str]) -> int:
    from recordmill.pipelines.vocab import main

    return main(arguments)


def _plan(arguments: list[str]) -> int:
    from recordmill.pipelines.forecast import main

    return main(arguments)


def _verify(arguments: list[str]) -> int:
    from recordmill.pipelines.verify import main

    return main(arguments)


def _doctor(arguments: list[str]) -> int:
    from recordmill.pipelines.doctor import main

    return main(arguments)


def _bench(arguments: list[str]) -> int:
    from recordmill.reader import bench

    parser = Parser(
        prog="recordmill bench", allow_abbrev=False,
        description="How fast a dataset is read, where the time goes, and what to change.",
    )  # fmt: skip
    bench.add_arguments(parser)
    return bench.run(parser.parse_args(arguments))


_COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "text": (_text, "raw text to tokenized, masked, sharded TFRecords"),
    "images": (_images, "images, with labels, boxes or masks, to sharded TFRecords"),
    "vocab": (_vocab, "a WordPiece vocabulary from text"),
    "plan": (_plan, "what text or images would do, take and cost; nothing is written"),
    "bench": (_bench, "reading speed of a dataset, and where the time goes"),
    "verify": (_verify, "check every record, count and checksum of a dataset"),
    "doctor": (_doctor, "what is installed, here and where jobs run, and what will not work"),
}


def _help() -> str:
    lines = [f"  {name:<8} {what}" for name, (_, what) in _COMMANDS.items()]
    return "usage: recordmill COMMAND [flags]   (recordmill COMMAND --help)\n\n" + "\n".join(lines)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0 if arguments else 2
    one_of("the command", arguments[0], _COMMANDS)
    return _COMMANDS[arguments[0]][0](arguments[1:])


class _TerminatedError(KeyboardInterrupt):
    """A signal other than Ctrl-C's asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__("terminated; run the same command again to go on")
        self.status = 128 + number


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Ends as Ctrl-C does by what a scheduler or a closed terminal sends."""
    changed: list[signal.Signals] = []

    def terminate(number: int, frame: object) -> None:
        for ending in changed:  # what ends now is not disturbed by a second one
            signal.signal(ending, signal.SIG_IGN)
        raise _TerminatedError(number)

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            ending = getattr(signal, name, None)
            if ending and signal.getsignal(ending) == signal.SIG_DFL:  # nohup wants it ignored
                signal.signal(ending, terminate)
                changed.append(ending)
    try:
        yield
    finally:
        for ending in changed:
            signal.signal(ending, signal.SIG_DFL)


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    # At the end of a process Python looks for garbage among all of Beam's objects: half a second.
    atexit.register(gc.freeze)
    name = "recordmill"
    try:
        with _ended_by_signals():
            return _run(sys.argv[1:] if arguments is None else arguments)
    except UsageError as error:
        _tell(f"{name}: {error}")
        return 2
    except RunError as error:
        _tell(f"{name}: {error}")
        return _end(1)
    except KeyboardInterrupt as error:
        why = str(error) or "interrupted; run the same command again to go on"
        _tell(f"{name}: {why}")
        return _end(error.status if isinstance(error, _TerminatedError) else 130)


def _tell(line: str) -> None:
    with suppress(OSError):  # the terminal may be closed
        print(line, file=sys.stderr)


def _end(status: int) -> int:
    """Returns the status, or ends at once where threads of an engine still wait for workers."""
    if any(thread.name in ("run_worker", "pipeline") for thread in threading.enumerate()):
        from recordmill.pipelines.launch import exit_now

        exit_now(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
