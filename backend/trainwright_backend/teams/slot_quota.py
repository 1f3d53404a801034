"""The quota of slots of a team: how many its runs may use at once.

A run uses its slots from its placement on nodes until it has left them; a waiting run uses none. The transaction
that places the run takes the quota, and the one that takes the run off its nodes releases it. So ``quota.used`` always
equals the sum of the ledger and the number of occupied slots, and never exceeds the limit at the time of the placement.
A single UPDATE guards the limit, so two concurrent placements cannot both pass it.

A part of the limit may be guaranteed: the team's share. `scheduling.placement_round` places runs within it first, and takes borrowed
slots back for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, insert, select, update

from trainwright.contracts.api.people import Quota as QuotaOut
from trainwright.contracts.listing import listed
from trainwright_backend.core.db import Read, Write
from trainwright_backend.teams.tables import LedgerEntry, Quota

DEVICES = ("cuda", "cpu")
SLOT_NOUNS = {"cuda": "GPU", "cpu": "CPU slot"}


@dataclass
class SlotBudget:
    """What a team may hold and holds of one kind of device, in one round of placement."""

    limit: int
    used: int
    guaranteed: int = 0
    """The team's share."""
    awaited: int = 0
    """Slots for which the team's runs wait, so far in this round."""

    def covers(self, slots: int) -> bool:
        """Whether the team's share covers ``slots`` more slots."""
        return self.used + self.awaited + slots <= self.guaranteed


def hold(session: Write, team_id: UUID, device: str, slots: int, run_id: UUID) -> bool:
    """Hold ``slots`` of the team's quota for a run, in the caller's transaction, if as many are free."""
    free = Quota.used + slots <= Quota.slots_limit
    taken = session.change(
        update(Quota)
        .where(Quota.team_id == team_id, Quota.device == device, free)
        .values(used=Quota.used + slots)
    )
    if taken:
        _add_entry(session, team_id, device, run_id, "reserve", slots)
    return bool(taken)


def release(session: Write, team_id: UUID, device: str, slots: int, run_id: UUID) -> None:
    """Release what `hold` held for the run. The caller must do this only once."""
    given = session.change(
        update(Quota)
        .where(Quota.team_id == team_id, Quota.device == device, Quota.used >= slots)
        .values(used=Quota.used - slots)
    )
    assert given, "more was released than was held"
    _add_entry(session, team_id, device, run_id, "release", -slots)


def slot_budgets(session: Read, device: str) -> dict[UUID, SlotBudget]:
    """The limit, use and share of each team."""
    rows = select(Quota.team_id, Quota.slots_limit, Quota.used, Quota.guaranteed_slots)
    return {
        team_id: SlotBudget(limit, used, guaranteed)
        for team_id, limit, used, guaranteed in session.execute(rows.where(Quota.device == device))
    }


def slot_budget(session: Read, team_id: UUID, device: str) -> SlotBudget:
    """The limit, use and share of a team."""
    quota = get_quota(session, team_id, device)
    return SlotBudget(quota.limit, quota.used, quota.guaranteed_slots)


def get_quota(session: Read, team_id: UUID, device: str) -> QuotaOut:
    """Limit, use and share of one kind of device."""
    row = session.execute(
        select(Quota.slots_limit, Quota.used, Quota.guaranteed_slots).where(
            Quota.team_id == team_id, Quota.device == device
        )
    ).one_or_none()
    limit, used, guaranteed = row if row is not None else (0, 0, 0)
    return QuotaOut(device=device, limit=limit, used=used, guaranteed_slots=guaranteed)


def all_guaranteed_slots(session: Read, device: str) -> int:
    """The shares of all teams together."""
    return session.scalar(select(func.sum(Quota.guaranteed_slots)).where(Quota.device == device)) or 0


def why_never_fits(session: Read, team_id: UUID, device: str, slots: int) -> str | None:
    """Why a run of the team on ``slots`` slots could not even start alone, and what to do; None if it could."""
    limit = get_quota(session, team_id, device).limit
    if slots <= limit:
        return None
    remedy = f"Request {limit} or fewer, or ask" if limit else "Ask"
    return (
        f"This run needs {count_slots(device, slots)}; your team may use {count_slots(device, limit)} at once. "
        f"{remedy} a site admin to raise the limit."
    )


def waits_for_quota(device: str, slots: int, budget: SlotBudget, holders: Sequence[str]) -> str:
    """What a run waits for if its team is at its limit, and which of the team's runs hold the slots."""
    needs = f"needs {count_slots(device, slots)}"
    if slots > budget.limit:
        return f"{needs}, and your team may use {budget.limit} at once; ask a site admin to raise the limit"
    by = f" ({listed(holders, most=3)})" if holders else ""
    return f"{needs}; your team uses {budget.used} of {budget.limit}{by}"


def count_slots(device: str, slots: int) -> str:
    """`1 GPU`, `4 CPU slots`."""
    noun = SLOT_NOUNS.get(device, f"{device} slot")
    return f"{slots} {noun}" if slots == 1 else f"{slots} {noun}s"


def _add_entry(session: Write, team_id: UUID, device: str, run_id: UUID, reason: str, slots: int) -> None:
    entry = {"team_id": team_id, "device": device, "run_id": run_id, "reason": reason, "slots": slots}
    session.connection().execute(insert(LedgerEntry), entry)
