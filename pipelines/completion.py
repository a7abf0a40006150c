"""What completes `recordmill` in bash, zsh and fish: commands, flags, choices, files and folders.

The scripts hold all flags, so a key starts no process. Both forms of a value are completed,
`--flag=value` and `--flag value`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from recordmill.pipelines.command_table import COMMANDS, JOBS, MADE, SUMMARIES
from recordmill.pipelines.faces import (
    completed_values,
    config_schema,
    first_sentence,
    flag_names,
)
from recordmill.pipelines.inspection.json_text import json_text
from recordmill.records.spec import Spec, option

Table = dict[str, dict[str, dict[str, Any]]]
_SUGGESTED = {"runner": ["direct", "flink", "dataflow", "prism"]}


class CompletionSpec(Spec, frozen=True, kw_only=True):
    """`recordmill completion`.

    Attributes:
      shell: whose script, or the schema of a configuration file.
      command: the job whose file it is.
    """

    shell: Annotated[Literal["bash", "zsh", "fish", "schema"], option(
        "The shell, or schema.", positional=True, value="SHELL", example="bash"
    )]  # fmt: skip
    command: Annotated[str, option(
        "The job whose configuration file the schema is of.", choices=MADE, example="images"
    )] = "text"  # fmt: skip


def run(spec: CompletionSpec) -> int:
    """Prints what completes commands; returns 0."""
    if spec.shell == "schema":
        schema = config_schema(spec.command, COMMANDS[spec.command].options())
        print(json_text(schema))
    else:
        print(completion_script(spec.shell, make_table()), end="")
    return 0


def make_table() -> Table:
    """Returns command -> flag -> what it is; an argument without a name is ""."""
    table: Table = {}
    for name, command in COMMANDS.items():
        if name == "completion":
            continue
        flags = table[name] = {}
        if command.is_job or name.startswith("plan "):
            flags["--help-all"] = {"values": "none", "help": "Show all flags"}
        if "preset" in command.options():
            flags["--help-presets"] = {"values": "none", "help": "Show all presets"}
        for each in command.options().values():
            values = _SUGGESTED.get(each.name) or completed_values(each)
            if each.declared.positional:
                values = "folder"
            for flag in flag_names(each) or [""]:
                flags[flag] = {"values": values, "help": first_sentence(each)}
    return table


def _flags(table: Table, command: str) -> dict[str, dict[str, Any]]:
    """Returns the flags of a command; the negative forms of those that are true or false are not
    suggested, because they would be half of the list.
    """
    known = {**table.get(command, {}), "--help": {"values": "none", "help": "Show help"}}
    return {f: each for f, each in known.items() if f and not f.startswith("--no-")}


def _takes_folder(table: Table, command: str) -> bool:
    return "" in table.get(command, {})


def _by_values(table: Table, command: str) -> Iterator[tuple[str, Any]]:
    """Yields each flag that takes a value, and what it takes."""
    for flag, known in _flags(table, command).items():
        if known["values"] != "none":
            yield flag, known["values"]


def _bash(table: Table) -> str:
    cases, values = [], []
    for command in _contexts(table):
        names = []
        for flag, known in _flags(table, command).items():
            names.append(flag if known["values"] == "none" else f"{flag}=")
        cases.append(f"    '{command}') flags='{' '.join(names)}' ;;")
        for flag, takes in _by_values(table, command):
            if isinstance(takes, list):
                words = " ".join(filter(None, takes))
                values.append(
                    f"    '{command} {flag}') COMPREPLY=($(compgen -W '{words}' -- \"$word\")) ;;"
                )
            elif takes in ("file", "folder"):
                kind = "-d" if takes == "folder" else "-f"
                values.append(f"    '{command} {flag}') _recordmill_paths {kind} \"$word\" ;;")
    return _BASH.format(
        commands=" ".join(SUMMARIES), cases="\n".join(cases), values="\n".join(values),
        folders="|".join(f"'{c}'" for c in _contexts(table) if _takes_folder(table, c)),
        jobs=" ".join(JOBS), shells=" ".join((*SHELLS, 'schema')),
    )  # fmt: skip


def _contexts(table: Table) -> list[str]:
    return [*table, "completion"]


_BASH = """\
# recordmill in bash: eval "$(recordmill completion bash)"
_recordmill_paths() {{
    local path
    COMPREPLY=()
    while IFS= read -r path; do
        [[ -d $path ]] && path+=/
        COMPREPLY+=("$(printf %q "$path")")
    done < <(compgen "$1" -- "${{2/#\\~/$HOME}}")
    compopt -o nospace 2>/dev/null
}}
_recordmill() {{
    local line=${{COMP_LINE:0:COMP_POINT}} word command flag flags
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    local last=$((${{#words[@]}} - 1))
    word=${{words[last]}}
    command=${{words[1]}}
    COMPREPLY=()
    if ((last == 1)); then
        COMPREPLY=($(compgen -W '{commands} --help --version' -- "$word"))
        return
    fi
    if [[ $command == help ]]; then
        COMPREPLY=($(compgen -W '{commands}' -- "$word"))
        return
    elif [[ $command == plan ]]; then
        if ((last == 2)); then
            COMPREPLY=($(compgen -W '{jobs} --help' -- "$word"))
            return
        fi
        command="plan ${{words[2]}}"
    elif [[ $command == completion && $last == 2 && $word != -* ]]; then
        COMPREPLY=($(compgen -W '{shells}' -- "$word"))
        return
    fi
    flag=${{words[last - 1]}}
    if [[ $word == --*=* ]]; then
        flag=${{word%%=*}}
        word=${{word#*=}}
    fi
    case "$command $flag" in
{values}
    esac
    ((${{#COMPREPLY[@]}})) && return
    [[ $flag == "${{words[last]%%=*}}" && ${{words[last]}} == --*=* ]] && return
    case "$command" in
{cases}
    esac
    if [[ $word != -* ]]; then
        case "$command" in
        {folders}) _recordmill_paths -f "$word"; return ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
    [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace 2>/dev/null
}}
complete -F _recordmill recordmill
"""


def _quoted(text: str) -> str:
    """Returns text in single quotes of bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh(table: Table) -> str:
    cases = []
    for command in _contexts(table):
        specs = []
        for flag, known in _flags(table, command).items():
            about = known["help"].replace("\\", "\\\\")
            for sign in "[]:":
                about = about.replace(sign, f"\\{sign}")
            takes = known["values"]
            if takes == "none":
                specs.append(_quoted(f"{flag}[{about}]"))
                continue
            action = {"file": "_files", "folder": "_files -/", "text": ""}.get(str(takes))
            if action is None:
                action = "(" + " ".join(filter(None, takes)) + ")"
            specs.append(_quoted(f"*{flag}=[{about}]:value:{action}"))
        if _takes_folder(table, command):
            specs.append("'*:path:_files'")
        if command == "completion":
            specs.append(f"'1:shell:({' '.join((*SHELLS, 'schema'))})'")
        lines = " \\\n            ".join(specs)
        cases.append(f"        {_quoted(command)})\n        _arguments {lines} ;;")
    commands = "\n".join(f"        {_quoted(f'{name}:{what}')}" for name, what in SUMMARIES.items())
    return _ZSH.format(
        commands=commands, cases="\n".join(cases), jobs=" ".join(JOBS)
    )  # fmt: skip


_ZSH = """\
#compdef recordmill
# recordmill in zsh: recordmill completion zsh > a folder of $fpath, as _recordmill;
# or behind compinit in .zshrc: eval "$(recordmill completion zsh)"
_recordmill() {{
    local -a commands
    commands=(
{commands}
    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    local command=$words[2]
    if [[ $command == help ]]; then
        _describe command commands
        return
    fi
    if [[ $command == plan ]]; then
        if ((CURRENT == 3)); then
            compadd {jobs}
            return
        fi
        command="plan $words[3]"
        shift words
        ((CURRENT--))
    fi
    shift words
    ((CURRENT--))
    case $command in
{cases}
    esac
}}
if [[ $funcstack[1] == _recordmill ]]; then
    _recordmill "$@"
else
    compdef _recordmill recordmill
fi
"""


def _fish(table: Table) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = [
        "# recordmill in fish: recordmill completion fish > this file, which is",
        "# ~/.config/fish/completions/recordmill.fish",
        "complete -c recordmill -f",
        "complete -c recordmill -n __fish_use_subcommand -l version -d 'Show the version'",
        "complete -c recordmill -l help -d 'Show help'",
    ]
    for name, what in SUMMARIES.items():
        lines.append(f"complete -c recordmill -n __fish_use_subcommand -a {name} -d {quoted(what)}")
    jobs = " ".join(JOBS)
    at_job = f"__fish_seen_subcommand_from plan; and not __fish_seen_subcommand_from {jobs}"
    lines.append(f"complete -c recordmill -n {quoted(at_job)} -a '{jobs}'")
    at_shell = quoted("__fish_seen_subcommand_from completion")
    lines.append(f"complete -c recordmill -n {at_shell} -a '{' '.join((*SHELLS, 'schema'))}'")
    for command in table:
        seen = " and ".join(f"__fish_seen_subcommand_from {word};" for word in command.split())
        if command in JOBS:
            seen = f"not __fish_seen_subcommand_from plan; and {seen}"
        where = quoted(seen.rstrip(";"))
        for flag, known in _flags(table, command).items():
            takes = known["values"]
            value = "" if takes == "none" else " -r"
            if isinstance(takes, list):
                value = f" -x -a {quoted(' '.join(filter(None, takes)))}"
            elif takes == "file":
                value = " -r -F"
            elif takes == "folder":
                value = " -x -a '(__fish_complete_directories (commandline -ct))'"
            lines.append(
                f"complete -c recordmill -n {where} -l {flag[2:]}{value} -d {quoted(known['help'])}"
            )
        if _takes_folder(table, command):
            lines.append(f"complete -c recordmill -n {where} -F")
    return "\n".join(lines) + "\n"


SHELLS: dict[str, Callable[[Table], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def completion_script(shell: str, table: Table) -> str:
    """Returns the script of a shell, one of `SHELLS`."""
    return SHELLS[shell](table)
