"""A team's limits and how much of them is used, for people. It is here because it includes the bytes of checkpoints."""

from collections.abc import Iterator
from uuid import UUID

from trainwright.contracts.api.limits import (
    LimitedResource,
    LimitUse,
    MemberLimits,
    MemberLimitUse,
    TeamLimits,
)
from trainwright.contracts.api.notices import NoticeKind
from trainwright.contracts.api.webhooks import WebhookEvent
from trainwright_backend.auth.tables import Account
from trainwright_backend.checkpoints.total_storage import MeasuredStorage
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.ids import public_id
from trainwright_backend.runs.limit_usage import (
    MeasuredLimits,
    RunUse,
    measure_use,
    month_start,
    monthly_hours,
    recent_hours,
)
from trainwright_backend.teams.limit_notices import Level, add_notices, due_notices, list_notices, show_notice
from trainwright_backend.teams.limits import all_member_limits, names_of_members, team_limits
from trainwright_backend.teams.notices import notify_members
from trainwright_backend.teams.tables import LimitNotice
from trainwright_backend.teams.webhooks import queue_message

HOURS = {"cuda": LimitedResource.GPU_HOURS, "cpu": LimitedResource.CPU_HOURS}


def show_limits(session: Read, team_id: UUID) -> LimitUse:
    """The limits of a team, and how much of them is used."""
    limits, use = team_limits(session, team_id), measure_use(session, {team_id})[(team_id, None)]
    month = month_start(now().date())
    return LimitUse(
        month=month,
        limits=limits,
        hours=monthly_hours(limits, use, recent_hours(session, team_id)[None]),
        storage=MeasuredStorage.measure(session, {team_id}).of(team_id).shown(),
        running=use.running,
        queued=use.queued,
        notices=list_notices(session, team_id, month),
    )


def list_member_limits(session: Read, team_id: UUID) -> list[MemberLimitUse]:
    """The limits of all members, by name, and how much of them is used."""
    limits, used = all_member_limits(session, {team_id}).get(team_id, {}), measure_use(session, {team_id})
    recent, storage = recent_hours(session, team_id), MeasuredStorage.measure(session, {team_id})
    found = []
    for user_id, name in names_of_members(session, team_id).items():
        own = limits.get(user_id, MemberLimits())
        use = used.get((team_id, user_id), RunUse())
        found.append(
            MemberLimitUse(
                user=public_id("user", user_id),
                name=name,
                limits=own,
                hours=monthly_hours(own, use, recent.get(user_id, {})),
                storage=storage.of(team_id, user_id).shown(),
                running=use.running,
                queued=use.queued,
            )
        )
    return found


def teams_with_due_notices(session: Read, measured: MeasuredLimits, storage: MeasuredStorage) -> list[UUID]:
    """The teams for which `note_levels` would store notices."""
    levels = {team_id: _levels(measured, storage, team_id) for team_id in measured.team_ids}
    due = due_notices(session, month_start(now().date()), levels)
    return sorted({team_id for team_id, _, _ in due})


def note_levels(session: Write, team_id: UUID) -> list[LimitNotice]:
    """Store the notices of a team that are due, tell its webhooks and members, and return them."""
    measured, storage = (
        MeasuredLimits.measure(session, {team_id}),
        MeasuredStorage.measure(session, {team_id}),
    )
    month = month_start(now().date())
    added = add_notices(session, team_id, month, _levels(measured, storage, team_id))
    for notice in added:
        account = None if notice.user_id is None else session.get(Account, notice.user_id)
        shown = show_notice(notice, None if account is None else account.name)
        queue_message(session, team_id, WebhookEvent.LIMIT_REACHED, shown.model_dump(mode="json"))
        kind = NoticeKind.LIMIT_REACHED
        notify_members(session, kind, team_id, shown.sentence, "usage", only=notice.user_id)
    return added


def _levels(measured: MeasuredLimits, storage: MeasuredStorage, team_id: UUID) -> list[Level]:
    """How much is used of each limit of a team and of its members."""
    limits: list[tuple[UUID | None, TeamLimits | MemberLimits]] = [
        (None, measured.teams.get(team_id, TeamLimits())),
        *measured.members.get(team_id, {}).items(),
    ]
    return [level for user, own in limits for level in _levels_of(measured, storage, team_id, user, own)]


def _levels_of(
    measured: MeasuredLimits,
    storage: MeasuredStorage,
    team_id: UUID,
    user_id: UUID | None,
    limits: TeamLimits | MemberLimits,
) -> Iterator[Level]:
    for device, resource in HOURS.items():
        limit = limits.hours_of(device)
        if limit is not None:
            yield Level(user_id, resource, limit, measured.use_of(team_id, user_id).hours[device])
    if limits.storage_bytes is not None:
        used = storage.of(team_id, user_id).used_bytes
        yield Level(user_id, LimitedResource.STORAGE, limits.storage_bytes, used)
