"""Views of the list of runs that a person saved: filter, order, columns and grouping under a name.

They belong to one person in one team; nobody else sees them.
"""

from uuid import UUID

from sqlalchemy import delete, func, select

from trainwright.contracts.api.runs import NewView, RunView
from trainwright.contracts.api.runs import SavedView as ShownView
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.runs.tables import SavedView

MAX_VIEWS = 100


def list_views(session: Read, team_id: UUID, account_id: UUID) -> list[ShownView]:
    """The person's views by name."""
    mine = (SavedView.team_id == team_id, SavedView.account_id == account_id)
    return [_shown(view) for view in session.scalars(select(SavedView).where(*mine).order_by(SavedView.name))]


def save_view(session: Write, team_id: UUID, account_id: UUID, new: NewView) -> ShownView:
    """Save a view; the person's view of the same name is replaced.

    Raises:
        Conflict: ``too_many_views``.
    """
    values = {"view": new.view.model_dump(mode="json"), "saved": now()}
    row = session.insert(SavedView).values(
        id=new_id(), team_id=team_id, account_id=account_id, name=new.name, **values
    )
    session.execute(row.on_conflict_do_update(index_elements=["team_id", "account_id", "name"], set_=values))
    mine = (SavedView.team_id == team_id, SavedView.account_id == account_id)
    many = session.scalar(select(func.count()).select_from(SavedView).where(*mine)) or 0
    if many > MAX_VIEWS:
        detail = f"You can have {MAX_VIEWS} views in a team. Delete one that you no longer need."
        raise Conflict("too_many_views", detail)
    return _shown(session.scalars(select(SavedView).where(*mine, SavedView.name == new.name)).one())


def delete_view(session: Write, team_id: UUID, account_id: UUID, view_id: str) -> None:
    """Delete one of the person's views.

    Raises:
        NotFound: the person has no such view.
    """
    mine = (SavedView.team_id == team_id, SavedView.account_id == account_id)
    gone = delete(SavedView).where(*mine, SavedView.id == parse_id("view", view_id))
    name = session.scalar(gone.returning(SavedView.name))
    if name is None:
        raise unknown("view", view_id)
    session.deleted_names = (name,)


def _shown(view: SavedView) -> ShownView:
    return ShownView(
        id=public_id("view", view.id),
        name=view.name,
        view=RunView.model_validate(view.view),
        saved=view.saved,
    )
