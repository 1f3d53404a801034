"""HTTP of saved recipes."""

from fastapi import APIRouter

from trainwright.contracts.api.verbs import NewRecipe, SavedRecipe
from trainwright_backend.auth.policies import Editor, Viewer
from trainwright_backend.core.db import ReadSession, WriteSession
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.runs import recipes

router = APIRouter(prefix="/teams/{team}/recipes", tags=["recipes"], route_class=GuardedRoute)


@router.get("")
def list_recipes(access: Viewer, session: ReadSession) -> list[SavedRecipe]:
    """The team's saved recipes by name, each with what this version refuses in it."""
    return recipes.list_recipes(session, access.team_id)


@router.post("", status_code=201)
def save_recipe(access: Editor, session: WriteSession, new: NewRecipe) -> SavedRecipe:
    """Keep fields of a spec under a name, for the next run. One of the same name is replaced."""
    return recipes.save_recipe(session, access.team_id, access.user_name, new)


@router.delete("/{recipe}", status_code=204)
def delete_recipe(access: Editor, session: WriteSession, recipe: str) -> None:
    """Forget a saved recipe."""
    recipes.delete_recipe(session, access.team_id, recipe)
