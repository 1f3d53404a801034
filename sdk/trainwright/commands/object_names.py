"""Objects of a team that are given by id or by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from trainwright.client import TeamClient
from trainwright.commands.terminal import print_error
from trainwright.contracts.api.actions import Recipe
from trainwright.contracts.api.datasets import Dataset, Tokenizer
from trainwright.contracts.api.runs import Run

MAX_WORDS = 10
"""Of a search."""
_HELP = "Id of a {0}, or its name if no other {0} has it."

RunName = Annotated[str, typer.Argument(metavar="RUN", help=_HELP.format("run"))]
RunNames = Annotated[list[str], typer.Argument(metavar="RUN…", help=_HELP.format("run"))]
DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help=_HELP.format("dataset"))]
TokenizerName = Annotated[str, typer.Argument(metavar="TOKENIZER", help=_HELP.format("tokenizer"))]
RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="Id or name of a recipe.")]


@dataclass(frozen=True)
class _Kind:
    """What the objects of a kind are called, and where their names are found."""

    noun: str
    prefix: str
    """Of their ids."""

    search: Callable[[TeamClient, str], Sequence[Run | Dataset | Tokenizer | Recipe]]
    """Finds those whose names contain a text, and maybe others."""


_RUN = _Kind("run", "run", lambda api, name: api.runs(q=" ".join(name.split()[:MAX_WORDS])))
_DATASET = _Kind("dataset", "ds", lambda api, _: api.datasets())
_TOKENIZER = _Kind("tokenizer", "tok", lambda api, _: api.tokenizers())
_RECIPE = _Kind("recipe", "recipe", lambda api, _: api.recipes())


def find_run(api: TeamClient, run: str) -> str:
    """The id of a run that is given by its id, or by its name if no other run of the team has it."""
    return _find(api, _RUN, run)


def find_runs(api: TeamClient, runs: Iterable[str]) -> list[str]:
    """The ids of runs that are given by id or name. One that is not found stays as it is: the API refuses it alone."""
    return [_only(_RUN, run, _candidates(api, _RUN, run) or [run]) for run in runs]


def find_dataset(api: TeamClient, dataset: str) -> str:
    """The id of a dataset, as `find_run`."""
    return _find(api, _DATASET, dataset)


def find_tokenizer(api: TeamClient, tokenizer: str) -> str:
    """The id of an uploaded tokenizer, as `find_run`."""
    return _find(api, _TOKENIZER, tokenizer)


def find_recipe(api: TeamClient, recipe: str) -> str:
    """The id of a recipe, as `find_run`."""
    return _find(api, _RECIPE, recipe)


def _find(api: TeamClient, kind: _Kind, given: str) -> str:
    found = _candidates(api, kind, given)
    if not found:
        print_error(
            f"No {kind.noun} of this team has the id or the name {given!r}."
            f" `trainwright {kind.noun}s list` lists them."
        )
        raise typer.Exit(1)
    return _only(kind, given, found)


def _candidates(api: TeamClient, kind: _Kind, given: str) -> list[str]:
    if re.fullmatch(f"{kind.prefix}_[a-z2-7]{{26}}", given):
        return [given]
    return [one.id for one in kind.search(api, given) if one.name == given]


def _only(kind: _Kind, given: str, ids: list[str]) -> str:
    if len(ids) == 1:
        return ids[0]
    print_error(f"{len(ids)} {kind.noun}s are named {given!r}. Give the id of one: {', '.join(ids[:5])}.")
    raise typer.Exit(1)
