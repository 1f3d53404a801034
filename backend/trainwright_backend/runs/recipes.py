"""Recipes: fields of a RunSpec that a team saves under a name, for later runs.

A recipe has no run name and no dataset: they are chosen with each run. The other fields are validated when the
recipe is saved, and again whenever it is shown, since a later version may refuse what an earlier one accepted.
"""

from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import func, select

from trainwright.contracts.api.actions import NewRecipe
from trainwright.contracts.api.actions import Recipe as ShownRecipe
from trainwright.contracts.base import Problem, problems
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.runs.tables import Recipe

MAX_RECIPES = 500
_COMES_WITH_THE_RUN = ("name", "data.dataset", "data.version")
_ANY_NAME, _ANY_DATASET = "recipe", "ds_"
"""Placeholders for what is not known yet, so that the other fields can be validated."""


def list_recipes(session: Read, team_id: UUID) -> list[ShownRecipe]:
    """The team's recipes by name."""
    found = select(Recipe).where(Recipe.team_id == team_id).order_by(Recipe.name)
    return [_shown(recipe) for recipe in session.scalars(found)]


def save_recipe(session: Write, team_id: UUID, by: str, new: NewRecipe) -> ShownRecipe:
    """Save a recipe; one of the same name is replaced.

    Raises:
        Invalid: no run could be started with it, with any data.
        Conflict: the team has as many recipes as a team can have.
    """
    found = recipe_problems(new.spec)
    if found:
        raise Invalid(found)
    values = {"spec": new.spec, "saved": now(), "saved_by_name": by}
    row = session.insert(Recipe).values(id=new_id(), team_id=team_id, name=new.name, **values)
    session.execute(row.on_conflict_do_update(index_elements=["team_id", "name"], set_=values))
    count = session.scalar(select(func.count()).select_from(Recipe).where(Recipe.team_id == team_id))
    if count is not None and count > MAX_RECIPES:
        detail = f"A team can have {MAX_RECIPES} recipes. Delete one that is no longer needed."
        raise Conflict("too_many_recipes", detail)
    mine = (Recipe.team_id == team_id, Recipe.name == new.name)
    return _shown(session.scalars(select(Recipe).where(*mine)).one())


def delete_recipe(session: Write, team_id: UUID, recipe_id: str) -> None:
    """Delete a recipe. Runs that were started with it are not affected.

    Raises:
        NotFound: the team has no such recipe.
    """
    row = session.get(Recipe, parse_id("recipe", recipe_id), with_for_update=True)
    if row is None or row.team_id != team_id:
        raise unknown("recipe", recipe_id)
    session.deleted_names = (row.name,)
    session.delete(row)


def recipe_problems(spec: dict[str, Any]) -> list[Problem]:
    """The reasons to refuse a run with ``spec``, as far as they are known without its data."""
    given = [field for field in _COMES_WITH_THE_RUN if _at(spec, field) is not None]
    if given:
        message = "A recipe is for any data and any run: leave this out. It is chosen with each run."
        return [Problem(field=field, message=message, value=_at(spec, field)) for field in given]
    data = spec.get("data", {})
    whole = data | {"dataset": _ANY_DATASET} if isinstance(data, dict) else data
    try:
        RunSpec.model_validate(spec | {"name": _ANY_NAME, "data": whole})
    except ValidationError as error:
        return problems(error, RunSpec)
    return []


def _at(spec: dict[str, Any], field: str) -> Any:
    section, _, key = field.rpartition(".")
    inner = spec.get(section) if section else spec
    return inner.get(key) if isinstance(inner, dict) else None


def _shown(recipe: Recipe) -> ShownRecipe:
    return ShownRecipe(
        id=public_id("recipe", recipe.id),
        name=recipe.name,
        spec=recipe.spec,
        problems=recipe_problems(recipe.spec),
        saved=recipe.saved,
        saved_by=recipe.saved_by_name,
    )
