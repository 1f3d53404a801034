"""Saved recipes of a team."""

from fastapi import Response

from trainwright.contracts.api.actions import NewRecipe, Recipe
from trainwright.contracts.api.envelopes import Page
from trainwright_backend.api.dependencies import ReadSession, WriteSession
from trainwright_backend.api.paging import Paged, page_of
from trainwright_backend.auth.policies import Editor, Viewer
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.runs import recipes

router = ResourceRouter(prefix="/teams/{team}/recipes", tags=["recipes"], route_class=GuardedRoute)


@router.get("", response_model=Page[Recipe])
def list_recipes(access: Viewer, session: ReadSession, asked: Paged) -> Page[Recipe] | Response:
    """The team's recipes by name, each with the problems that this version finds in it."""
    return page_of(recipes.list_recipes(session, access.team_id), asked, lambda recipe: recipe.id)


@router.post("", status_code=201)
def save_recipe(access: Editor, session: WriteSession, new: NewRecipe) -> Recipe:
    """Save fields of a spec under a name, for later runs. A recipe of the same name is replaced."""
    return recipes.save_recipe(session, access.team_id, access.user_name, new)


@router.delete("/{recipe}", status_code=204)
def delete_recipe(access: Editor, session: WriteSession, recipe: str) -> None:
    """Delete a recipe."""
    recipes.delete_recipe(session, access.team_id, recipe)
