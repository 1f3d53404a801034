"""The parts of a platform on one machine that do not work, in a file: `local` writes it, `/health` reads it."""

import json
from pathlib import Path

from trainwright.durable_files import write_durably


def write_part_problems(file: Path, problems: dict[str, str]) -> None:
    """Replace the file: the name of each part that does not work, with what happened to it."""
    write_durably(file, json.dumps(problems).encode())


def read_part_problems(file: Path) -> dict[str, str]:
    """What the file says; nothing if there is none."""
    try:
        problems: dict[str, str] = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    return problems
