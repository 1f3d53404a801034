"""Commands about recipes: specs that are saved under a name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from trainwright.commands.object_names import RecipeName, find_recipe
from trainwright.commands.spec_files import read_object
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    Sets,
    TeamSlug,
    apply_set,
    open_team,
    print_error,
    print_json,
    print_table,
    table_of,
)

app = typer.Typer(no_args_is_help=True, help="Save specs as recipes for later runs.")


@app.command("list")
def list_recipes(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List the team's recipes, and what is invalid in them."""
    with open_team(server, key, team) as api:
        found = api.recipes()
        if print_json(found, as_json):
            return
        table = table_of("name", "saved", "by", "problems")
        for recipe in found:
            problems = "; ".join(f"{problem.field}: {problem.message}" for problem in recipe.problems)
            day = f"{recipe.saved.astimezone():%Y-%m-%d}"
            table.add_row(recipe.id, recipe.name, day, recipe.saved_by, problems)
        print_table(table, empty="No recipes.")


@app.command("save")
def save(
    name: str,
    spec: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Save a spec as a recipe, without its name and dataset. A recipe of the same name is replaced."""
    with open_team(server, key, team) as api:
        kept = read_object(spec)
        for change in sets or []:
            apply_set(kept, change)
        saved = api.save_recipe(name, without_name_and_dataset(kept))
        if print_json(saved, as_json):
            return
        typer.echo(saved.id)


@app.command("show")
def show(
    recipe: RecipeName, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Print a recipe as JSON. To submit it, add `name` and `data.dataset`, for example with --set."""
    with open_team(server, key, team) as api:
        found = next((item for item in api.recipes() if recipe in (item.id, item.name)), None)
        if found is None:
            print_error(f"There is no recipe {recipe!r}. `trainwright recipes list` lists them.")
            raise typer.Exit(1)
        if print_json(found, as_json):
            return
        typer.echo(json.dumps(found.spec, indent=2))


@app.command("delete")
def delete(recipe: RecipeName, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Delete a recipe. Runs that were started with it are not affected."""
    with open_team(server, key, team) as api:
        api.delete_recipe(find_recipe(api, recipe))


def without_name_and_dataset(spec: dict[str, Any]) -> dict[str, Any]:
    """``spec`` without its name, dataset and version, which each run chooses."""
    kept = {section: value for section, value in spec.items() if section != "name"}
    data = kept.get("data")
    if isinstance(data, dict):
        kept["data"] = {field: value for field, value in data.items() if field not in ("dataset", "version")}
    return kept
