"""Deleting a team with everything it has: runs, checkpoints, datasets, uploads, members, service accounts, limits and its usage.

Rows are deleted in the order of what refers to what. The control loop deletes the team's folder of the object store.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, func, select

from trainwright.contracts.run_state import FINAL
from trainwright_backend.auth.tables import Account, Team
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.deletion_queue import latest_link_expiry, queue_deletion
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.datasets.tables import (
    Dataset,
    DatasetVersion,
    MixedVersion,
    ParsedFile,
    Preparation,
    UploadedTokenizer,
)
from trainwright_backend.runs.tables import Run
from trainwright_backend.teams.members import lock_for_owner
from trainwright_backend.teams.team_locks import lock_to_delete
from trainwright_backend.uploads.tables import StoredFile, Upload

NAMED_RUNS = 3


def delete_team(session: Write, team_id: UUID, caller_id: UUID, slug: str, confirm: str) -> None:
    """Delete a team. ``confirm``: its slug, repeated by the caller.

    Raises:
        Conflict: ``runs_not_final``: some of its runs have not ended.
        Forbidden: the caller is no longer an owner.
        Invalid: ``confirm`` is not the slug.
        NotFound: another request has deleted the team.
    """
    if confirm != slug:
        raise Invalid.at(
            "confirm", f"Repeat the team's slug, {slug}, to delete it with everything it has.", confirm
        )
    lock_to_delete(session, team_id)
    lock_for_owner(session, team_id, caller_id)
    _refuse_live_runs(session, team_id)
    links_until = _links_until(session, team_id)
    session.execute(delete(Run).where(Run.team_id == team_id))
    versions = select(DatasetVersion.id).join(Dataset).where(Dataset.team_id == team_id)
    session.execute(delete(MixedVersion).where(MixedVersion.version_id.in_(versions)))
    for table in (Dataset, Preparation, ParsedFile, UploadedTokenizer, Upload, StoredFile):
        session.execute(delete(table).where(table.team_id == team_id))
    session.execute(delete(Account).where(Account.service_of == team_id))
    session.execute(delete(Team).where(Team.id == team_id))
    queue_deletion(session, str(team_id), links_until=links_until)


def _refuse_live_runs(session: Read, team_id: UUID) -> None:
    live = (Run.team_id == team_id, Run.state.not_in(FINAL))
    names = session.scalars(select(Run.name).where(*live).order_by(Run.id).limit(NAMED_RUNS + 1)).all()
    if names:
        shown = ", ".join(names[:NAMED_RUNS]) + (" and others" if len(names) > NAMED_RUNS else "")
        detail = f"These runs have not ended: {shown}. Cancel them, wait until they have ended, then delete the team."
        raise Conflict("runs_not_final", detail)


def _links_until(session: Read, team_id: UUID) -> datetime | None:
    own = select(func.max(Checkpoint.links_until)).join(Run, Run.id == Checkpoint.run_id)
    found = (session.scalar(own.where(Run.team_id == team_id)), latest_link_expiry(session, str(team_id)))
    return max((until for until in found if until is not None), default=None)
