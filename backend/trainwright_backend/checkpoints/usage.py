"""A team's usage of slots and storage, with the names of the runs that used most.

It is here because it includes the bytes of checkpoints, which do not count towards the limit for files.
"""

from uuid import UUID

from sqlalchemy import func, select

from trainwright.contracts.api.usage import DailyRunUsage, RunUsage, Usage
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read
from trainwright_backend.core.ids import public_id
from trainwright_backend.runs.joined_nodes import with_joined_slots
from trainwright_backend.runs.tables import Run
from trainwright_backend.teams.service import show_team
from trainwright_backend.teams.usage import (
    first_day,
    list_daily_usage,
    list_member_usage,
    list_run_days,
    list_top_runs,
)

LISTED_RUNS = 20


def show_usage(session: Read, team_id: UUID, days: int) -> Usage:
    """The team's usage on the last ``days`` days (UTC), including today."""
    first = first_day(days)
    team = show_team(session, team_id)
    used = list_top_runs(session, team_id, first, LISTED_RUNS)
    theirs = select(Run.id, Run.name).where(Run.id.in_([item.run_id for item in used]))
    names = {row.id: row.name for row in session.execute(theirs)}
    return Usage(
        quota=with_joined_slots(session, team.quota),
        storage=team.storage,
        team_checkpoint_bytes=checkpoint_bytes(session, team_id),
        days=list_daily_usage(session, team_id, first),
        members=list_member_usage(session, team_id, first),
        runs=[
            RunUsage(
                run=public_id("run", item.run_id),
                name=names.get(item.run_id, ""),
                device=item.device,
                slot_hours=item.slot_hours,
            )
            for item in used
        ],
    )


def list_run_usage(session: Read, team_id: UUID, days: int) -> list[DailyRunUsage]:
    """What each run used on each of the last ``days`` days (UTC), oldest first."""
    rows = list_run_days(session, team_id, first_day(days))
    names = {
        row.id: row.name for row in session.execute(select(Run.id, Run.name).where(Run.team_id == team_id))
    }
    return [
        DailyRunUsage(
            **row.used.model_dump(), run=public_id("run", row.run_id), run_name=names.get(row.run_id, "")
        )
        for row in rows
    ]


def checkpoint_bytes(session: Read, team_id: UUID) -> int:
    """Bytes of the committed checkpoints and exports of the team's runs."""
    total = select(func.sum(Checkpoint.bytes)).join(Run, Run.id == Checkpoint.run_id)
    return int(session.scalar(total.where(Run.team_id == team_id, Checkpoint.committed.is_not(None))) or 0)
