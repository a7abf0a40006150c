"""`python -m recordmill.pipelines.plan` is `recordmill plan`."""

import sys

from recordmill.pipelines.command_line import main as command_line


def main(arguments: list[str] | None = None) -> int:
    """Runs `recordmill plan`; returns the exit status."""
    return command_line(["plan", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
