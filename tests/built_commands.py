"""Command lines that the tests of a process build once: `trainwright` has so many commands that each build takes a fifth of a second."""

from functools import cache
from unittest.mock import patch

from typer.main import get_command


def share_built_commands() -> None:
    """Let `typer.testing.CliRunner` build each command line once in this process."""
    patch("typer.testing._get_command", cache(get_command)).start()
