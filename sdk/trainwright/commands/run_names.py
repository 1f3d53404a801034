"""Runs that are given by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import typer

from trainwright.client import TeamClient
from trainwright.commands.terminal import print_error

_HELP = "Id of a run, or its name if no other run has it."

RunName = Annotated[str, typer.Argument(metavar="RUN", help=_HELP)]
RunNames = Annotated[list[str], typer.Argument(metavar="RUN…", help=_HELP)]

_ID = re.compile(r"run_[a-z2-7]{26}")


def find_run(api: TeamClient, run: str) -> str:
    """The id of a run that is given by its id, or by its name if no other run of the team has it."""
    found = _candidates(api, run)
    if not found:
        print_error(
            f"No run of this team has the id or the name {run!r}. `trainwright runs list` lists them."
        )
        raise typer.Exit(1)
    return _only(run, found)


def find_runs(api: TeamClient, runs: Iterable[str]) -> list[str]:
    """The ids of runs that are given by id or name. One that is not found stays as it is: the API refuses it alone."""
    return [_only(run, _candidates(api, run) or [run]) for run in runs]


def _candidates(api: TeamClient, run: str) -> list[str]:
    return [run] if _ID.fullmatch(run) else [one.id for one in api.runs(q=run) if one.name == run]


def _only(run: str, ids: list[str]) -> str:
    if len(ids) == 1:
        return ids[0]
    print_error(f"{len(ids)} runs are named {run!r}. Give the id of one: {', '.join(ids[:5])}.")
    raise typer.Exit(1)
