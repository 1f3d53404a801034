"""The caller's saved views of a team's list of runs."""

from trainwright.contracts.api.envelopes import Page
from trainwright.contracts.api.runs import NewView, SavedView
from trainwright_backend.api.dependencies import ReadSession, WriteSession
from trainwright_backend.auth.policies import Viewer
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.runs import saved_views

router = ResourceRouter(prefix="/teams/{team}/views", tags=["runs"], route_class=GuardedRoute)


@router.get("")
def list_views(access: Viewer, session: ReadSession) -> Page[SavedView]:
    """Your saved views of the team's runs, by name."""
    return Page[SavedView](
        items=saved_views.list_views(session, access.team_id, access.user_id), next_cursor=None
    )


@router.post("", status_code=201)
def save_view(access: Viewer, session: WriteSession, new: NewView) -> SavedView:
    """Save a view under a name, for yourself. Your view of the same name is replaced."""
    return saved_views.save_view(session, access.team_id, access.user_id, new)


@router.delete("/{view}", status_code=204)
def delete_view(access: Viewer, session: WriteSession, view: str) -> None:
    """Delete one of your views."""
    saved_views.delete_view(session, access.team_id, access.user_id, view)
