"""`recordmill completion bash|zsh|fish`: print what completes commands, flags and their values."""

from __future__ import annotations

from recordmill.pipelines.arguments import Parser
from recordmill.pipelines.completion import SHELLS, completion_script
from recordmill.pipelines.flag_table import read_table


def make_parser() -> Parser:
    """Returns the parser of `recordmill completion`."""
    parser = Parser(
        prog="recordmill completion",
        description="Prints a script that completes commands, flags and their values: in bash "
        'eval "$(recordmill completion bash)", in zsh the same behind compinit; for fish a file '
        "~/.config/fish/completions/recordmill.fish.",
    )
    parser.add_argument("shell", choices=tuple(SHELLS), help="The shell.")
    return parser


def main(arguments: list[str]) -> int:
    """Runs `recordmill completion`; returns 0."""
    shell: str = make_parser().parse_args(arguments).shell
    print(completion_script(shell, read_table()), end="")
    return 0
