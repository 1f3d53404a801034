"""Finds the commands of our programs in a page's blocks and sentences, and what is wrong with their names and options."""

import re
from collections.abc import Iterator

import typer.main
from typer.core import TyperGroup

from trainwright.cli import app as user_program
from trainwright_agent.main import app as agent_program
from trainwright_backend.cli import app as server_program

PROGRAMS = {
    name: typer.main.get_command(app)
    for name, app in {
        "trainwright": user_program,
        "trainwright-server": server_program,
        "trainwright-agent": agent_program,
    }.items()
}
COMMAND = re.compile(r"(?<![\w./=-])(?:\S*/bin/)?(trainwright(?:-server|-agent)?) ([a-z-].*)")
WORD = re.compile(r"[a-z][a-z-]*(\|[a-z-]+)*")
END = re.compile(r"\s+#|[`;&<>]|\s\|\s")


def named_commands(text: str) -> Iterator[str]:
    """Each command of our programs in the blocks, and in the sentences where it is marked as code."""
    for block in re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if found := COMMAND.search(line):
                yield f"{found[1]} {END.split(found[2])[0].strip()}"
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`]+)`", prose):
        if found := COMMAND.match(" ".join(code.split())):
            yield f"{found[1]} {found[2]}"


def problem_with(command: str) -> str | None:
    """What is wrong with the names of a command's subcommands and options; None if they exist."""
    program, *words = command.split()
    current = [PROGRAMS[program]]
    for position, word in enumerate(words):
        groups = [one for one in current if isinstance(one, TyperGroup)]
        if not groups or not WORD.fullmatch(word):
            break
        names = word.split("|")
        missing = [name for name in names if name not in groups[0].commands]
        if missing:
            return f"{command}: there is no {missing[0]}"
        current = [groups[0].commands[name] for name in names]
        words = words if position + 1 < len(words) else []
    options = {
        option for one in current for param in one.params for option in [*param.opts, *param.secondary_opts]
    }
    given = re.findall(r"(?<!\S)(--[a-z-]+)", command)
    unknown = [option for option in given if option not in options | {"--help", "--version"}]
    return f"{command}: there is no option {unknown[0]}" if unknown else None
