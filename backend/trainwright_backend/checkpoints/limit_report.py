"""A team's limits and how much of them is used, for people. It is here because it includes the bytes of checkpoints."""

from collections.abc import Iterator
from uuid import UUID

from trainwright.contracts.api.limits import LimitedResource, LimitUse, MemberLimitUse, RunLimits
from trainwright.contracts.api.webhooks import WebhookEvent
from trainwright_backend.auth.tables import Account
from trainwright_backend.checkpoints.total_storage import total_storage
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.ids import public_id
from trainwright_backend.runs.limit_use import RunUse, measure_use, month_start, monthly_hours
from trainwright_backend.teams.limit_notices import Level, add_notices, list_notices, show_notice
from trainwright_backend.teams.limits import all_member_limits, member_limits, names_of_members, team_limits
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
        hours=monthly_hours(session, team_id, None, limits, use),
        storage=total_storage(session, team_id),
        running=use.running,
        queued=use.queued,
        notices=list_notices(session, team_id, month),
    )


def list_member_limits(session: Read, team_id: UUID) -> list[MemberLimitUse]:
    """The limits of all members, by name, and how much of them is used."""
    limits, used = all_member_limits(session, {team_id}).get(team_id, {}), measure_use(session, {team_id})
    found = []
    for user_id, name in names_of_members(session, team_id).items():
        own = limits.get(user_id, member_limits(session, team_id, user_id))
        use = used.get((team_id, user_id), RunUse())
        found.append(
            MemberLimitUse(
                user=public_id("user", user_id),
                name=name,
                limits=own,
                hours=monthly_hours(session, team_id, user_id, own, use),
                running=use.running,
                queued=use.queued,
            )
        )
    return found


def note_levels(session: Write, team_id: UUID) -> list[LimitNotice]:
    """Store the notices of a team that are due, with messages to its webhooks, and return them."""
    added = add_notices(session, team_id, month_start(now().date()), list(_levels(session, team_id)))
    for notice in added:
        account = None if notice.user_id is None else session.get(Account, notice.user_id)
        shown = show_notice(notice, None if account is None else account.name)
        queue_message(session, team_id, WebhookEvent.LIMIT_REACHED, shown.model_dump(mode="json"))
    return added


def _levels(session: Read, team_id: UUID) -> Iterator[Level]:
    used, team = measure_use(session, {team_id}), team_limits(session, team_id)
    yield from _hour_levels(None, team, used[(team_id, None)])
    for user_id, own in all_member_limits(session, {team_id}).get(team_id, {}).items():
        yield from _hour_levels(user_id, own, used.get((team_id, user_id), RunUse()))
    if team.storage_bytes is not None:
        stored = total_storage(session, team_id).used_bytes
        yield Level(None, LimitedResource.STORAGE, team.storage_bytes, stored)


def _hour_levels(user_id: UUID | None, limits: RunLimits, use: RunUse) -> Iterator[Level]:
    for device, resource in HOURS.items():
        limit = limits.hours_of(device)
        if limit is not None:
            yield Level(user_id, resource, limit, use.hours[device])
