"""The quota of slots of a team.

Slots are reserved in the transaction that submits a run, and released by the transition that ends it. So ``quota.used``
always equals the sum of the ledger, and never exceeds the limit at the time of the reservation. A single UPDATE guards
the limit, so two concurrent submissions cannot both pass it.
"""

from uuid import UUID

from sqlalchemy import select, update

from trainwright.contracts.api.people import Quota as QuotaOut
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.teams.tables import LedgerEntry, Quota

DEVICES = ("cuda", "cpu")


def reserve(session: Write, team_id: UUID, device: str, slots: int, run_id: UUID) -> None:
    """Reserve ``slots`` of the team's quota for a run, in the caller's transaction.

    Raises:
        AppError: 403 ``quota_exceeded``, with limit, used and requested slots.
    """
    free = Quota.used + slots <= Quota.slots_limit
    taken = session.change(
        update(Quota)
        .where(Quota.team_id == team_id, Quota.device == device, free)
        .values(used=Quota.used + slots)
    )
    if not taken:
        raise _quota_exceeded(get_quota(session, team_id, device), slots)
    _add_entry(session, team_id, device, run_id, "reserve", slots)


def release(session: Write, team_id: UUID, device: str, slots: int, run_id: UUID) -> None:
    """Release what `reserve` reserved for the run. The caller must do this only once."""
    given = session.change(
        update(Quota)
        .where(Quota.team_id == team_id, Quota.device == device, Quota.used >= slots)
        .values(used=Quota.used - slots)
    )
    assert given, "more was released than was reserved"
    _add_entry(session, team_id, device, run_id, "release", -slots)


def get_quota(session: Read, team_id: UUID, device: str) -> QuotaOut:
    """Limit and use of one kind of device."""
    row = session.execute(
        select(Quota.slots_limit, Quota.used).where(Quota.team_id == team_id, Quota.device == device)
    ).one_or_none()
    limit, used = row if row is not None else (0, 0)
    return QuotaOut(device=device, limit=limit, used=used)


def _quota_exceeded(quota: QuotaOut, requested: int) -> AppError:
    left = quota.limit - quota.used
    if left > 0:
        remedy = f"Request {left} or fewer, or wait until a run ends."
    elif quota.limit:
        remedy = "Wait until a run ends, or ask a site admin to raise the limit."
    else:
        remedy = "Ask a site admin to raise the limit."
    return AppError(
        "quota_exceeded",
        403,
        f"This run requests {requested} {quota.device} slots; your team can use {quota.limit}, and "
        f"{quota.used} are in use by running and queued runs. "
        f"{remedy}",
        extensions={"device": quota.device, "limit": quota.limit, "used": quota.used, "asked": requested},
    )


def _add_entry(session: Write, team_id: UUID, device: str, run_id: UUID, reason: str, slots: int) -> None:
    session.add(LedgerEntry(team_id=team_id, device=device, run_id=run_id, reason=reason, slots=slots))
    session.flush()
