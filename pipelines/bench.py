"""`python -m recordmill.pipelines.bench` is `recordmill bench`."""

import sys

from recordmill.pipelines.command_line import main as command_line


def main(arguments: list[str] | None = None) -> int:
    """Runs `recordmill bench`; returns the exit status."""
    return command_line(["bench", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
