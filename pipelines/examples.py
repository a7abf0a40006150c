"""`python -m recordmill.pipelines.examples` is `recordmill examples`."""

import sys

from recordmill.pipelines.command_line import main as command_line


def main(arguments: list[str] | None = None) -> int:
    """Runs `recordmill examples`; returns the exit status."""
    return command_line(["examples", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
