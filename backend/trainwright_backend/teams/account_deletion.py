"""Deleting an account. Its sessions, keys, memberships and saved views go with it.

Runs and datasets stay in their teams under the name of their creator, and so does the time that the runs used.
"""

from uuid import UUID

from sqlalchemy import delete, select

from trainwright_backend.auth.tables import Account, Membership, Team
from trainwright_backend.core.db import Write
from trainwright_backend.core.errors import Conflict
from trainwright_backend.teams.members import is_last_owner, leave
from trainwright_backend.teams.team_locks import lock_team


def delete_account(session: Write, user_id: UUID) -> None:
    """Delete an account whose password was checked.

    Raises:
        Conflict: ``last_owner`` of a team, which is named; ``last_site_admin``.
    """
    account = session.get_one(Account, user_id, with_for_update=True)
    teams = session.scalars(
        select(Team).join(Membership).where(Membership.user_id == user_id).order_by(Team.id)
    ).all()
    for team in teams:
        lock_team(session, team.id)
        membership = session.get(Membership, (team.id, user_id), populate_existing=True)
        if membership is not None and is_last_owner(session, membership):
            detail = f"You are the last owner of {team.name} ({team.slug}). Make another member an owner, or delete the team first."
            raise Conflict("last_owner", detail)
        leave(session, team.id, user_id)
    if account.site_admin:
        admins = session.scalars(select(Account.id).where(Account.site_admin).with_for_update()).all()
        if len(admins) == 1:
            detail = "You are the last site admin. An operator can make another account a site admin first."
            raise Conflict("last_site_admin", detail)
    session.execute(delete(Account).where(Account.id == user_id))
