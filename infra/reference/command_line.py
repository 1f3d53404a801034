"""The reference page of the command lines. typer itself describes its programs; argparse shows the help of the trainer's."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

from typer.cli import app as typer_program
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

PROGRAMS = {
    "trainwright": "trainwright.cli",
    "trainwright-server": "trainwright_backend.cli",
    "trainwright-agent": "trainwright_agent.main",
}
TRAINER = "trainwright_trainer.main"

HEAD = """# Command line

`trainwright` is for users, `trainwright-server` for operators, and `trainwright-agent` runs on nodes. Each command prints its
own help with `--help`.
"""

TRAINER_HEAD = f"""## `python -m {TRAINER}`

[Using the trainer without the platform](../trainer.md) shows its commands in order.
"""

SHORTENED_LIST = re.compile(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+\n?")
"""typer's list of subcommands has shortened sentences. The full ones are in the sections that follow."""


def page() -> str:
    """Every command of every program, with arguments, options and defaults."""
    parts = [HEAD, *(_typer_program(name, module) for name, module in PROGRAMS.items()), TRAINER_HEAD]
    overview = _trainer_help()
    parts.append(f"```text\n{overview}```\n")
    for command in re.findall(r"^    (\w+)  ", overview, re.MULTILINE):
        parts.append(f"### `{command}`\n\n```text\n{_trainer_help(command)}```\n")
    return "\n".join(parts)


def _typer_program(name: str, module: str) -> str:
    done = CliRunner().invoke(typer_program, [module, "utils", "docs", "--name", name])
    if done.exit_code:
        raise RuntimeError(f"typer cannot describe {name}: {done.output}") from done.exception
    text = SHORTENED_LIST.sub("", done.output)
    for hidden in hidden_commands(get_command(import_module(module).app), name):
        section = rf"^#+ `{re.escape(hidden)}`\n.*?(?=^#|\Z)"
        text = re.sub(section, "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^#", "##", text, flags=re.MULTILINE)


def hidden_commands(command: object, path: str) -> Iterator[str]:
    """The commands below ``path`` that help does not list, such as `trainwright layout`: earlier names of others."""
    for name, one in command.commands.items() if isinstance(command, TyperGroup) else ():
        if one.hidden:
            yield f"{path} {name}"
        else:
            yield from hidden_commands(one, f"{path} {name}")


def _trainer_help(*words: str) -> str:
    command = [sys.executable, "-m", TRAINER, *words, "--help"]
    wide = os.environ | {"COLUMNS": "110"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=wide).stdout
