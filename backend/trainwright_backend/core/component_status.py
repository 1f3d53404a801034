"""Problems with parts of a platform on one machine, in a file that `local` writes and `/health` reads."""

import json
from pathlib import Path

from trainwright.durable_files import write_durably


def write_part_problems(file: Path, problems: dict[str, str]) -> None:
    """Replace the file with ``problems``: a message for each part that does not work, by its name."""
    write_durably(file, json.dumps(problems).encode())


def read_part_problems(file: Path) -> dict[str, str]:
    """The problems in the file; none if there is no file."""
    try:
        problems: dict[str, str] = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    return problems
