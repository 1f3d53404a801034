"""The option `--version` of all our command lines."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer


def _print_version(given: bool) -> None:
    if given:
        typer.echo(f"trainwright {version('trainwright')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
]
