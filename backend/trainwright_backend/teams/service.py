"""Teams, their people and their quota of slots; their storage: `storage`.

Slots are reserved in the transaction that submits a run and given back by the move that ends it, so at every instant
the ledger's sum is ``quota.used`` and never above the limit at which it was reserved. The guard is one UPDATE: two
submissions at once cannot both pass it.
"""

from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from trainwright.contracts.api.people import Member, NewTeam, Role, StorageUse
from trainwright.contracts.api.people import Quota as QuotaOut
from trainwright.contracts.api.people import Team as TeamOut
from trainwright_backend.auth.tables import Account, Membership, Team
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import AppError, Conflict, Invalid, NotFound
from trainwright_backend.core.ids import public_id
from trainwright_backend.core.site import RESERVED_SLUGS
from trainwright_backend.teams.storage import set_storage_limit, storage_use
from trainwright_backend.teams.tables import LedgerEntry, Quota, StorageQuota

DEVICES = ("cuda", "cpu")


def reserve(session: Write, team_id: UUID, device: str, slots: int, run_id: UUID) -> None:
    """Take ``slots`` of the team's quota for a run, in the caller's transaction.

    Raises:
        AppError: 403 ``quota_exceeded``, naming limit, used and asked.
    """
    free = Quota.used + slots <= Quota.slots_limit
    taken = session.change(
        update(Quota)
        .where(Quota.team_id == team_id, Quota.device == device, free)
        .values(used=Quota.used + slots)
    )
    if not taken:
        raise _quota_exceeded(_quota(session, team_id, device), slots)
    _note(session, team_id, device, run_id, "reserve", slots)


def release(session: Write, team_id: UUID, device: str, slots: int, run_id: UUID) -> None:
    """Give back what `reserve` took for the run; the caller does this once."""
    given = session.change(
        update(Quota)
        .where(Quota.team_id == team_id, Quota.device == device, Quota.used >= slots)
        .values(used=Quota.used - slots)
    )
    assert given, "more was released than was reserved"
    _note(session, team_id, device, run_id, "release", -slots)


def create_team(
    session: Write, new: NewTeam, owner_id: UUID, slots_limit: int, storage_limit_gib: int
) -> TeamOut:
    """A team with its first owner, a quota of ``slots_limit`` of each device, and room for its files."""
    if new.slug in RESERVED_SLUGS:
        raise Invalid.at("slug", "This name is an address of the platform itself. Choose another.", new.slug)
    team = Team(slug=new.slug, name=new.name)
    try:
        with session.begin_nested():
            session.add(team)
    except IntegrityError:
        raise Conflict("slug_taken", f"There is already a team {new.slug!r}. Choose another slug.") from None
    session.add(Membership(team_id=team.id, user_id=owner_id, role=Role.OWNER))
    session.add_all(Quota(team_id=team.id, device=device, slots_limit=slots_limit) for device in DEVICES)
    session.add(StorageQuota(team_id=team.id, limit_bytes=storage_limit_gib * 2**30))
    session.flush()
    return show_team(session, team.id)


def show_team(session: Read, team_id: UUID) -> TeamOut:
    """A team with its quota and storage."""
    team = session.get_one(Team, team_id)
    return TeamOut(
        slug=team.slug,
        name=team.name,
        quota=[_quota(session, team_id, device) for device in DEVICES],
        storage=storage_use(session, team_id),
    )


def list_teams(session: Read, user_id: UUID) -> list[TeamOut]:
    """The teams that the person is in."""
    ids = session.scalars(
        select(Team.id).join(Membership).where(Membership.user_id == user_id).order_by(Team.slug)
    )
    return [show_team(session, team_id) for team_id in ids]


def list_members(session: Read, team_id: UUID) -> list[Member]:
    """The people of a team by name."""
    rows = session.execute(
        select(Account, Membership.role)
        .join(Membership, Membership.user_id == Account.id)
        .where(Membership.team_id == team_id)
        .order_by(Account.name, Account.email)
    )
    return [
        Member(id=public_id("user", account.id), name=account.name, email=account.email, role=Role(role))
        for account, role in rows
    ]


def set_quota(session: Write, slug: str, device: str, limit: int) -> QuotaOut:
    """Change a team's limit. Runs that hold more go on; the team gets new slots when it is below again."""
    if device not in DEVICES:
        raise NotFound(f"There is no device {device[:40]!r}: it is one of {', '.join(DEVICES)}.")
    team_id = team_id_of(session, slug)
    session.execute(
        update(Quota).where(Quota.team_id == team_id, Quota.device == device).values(slots_limit=limit)
    )
    return _quota(session, team_id, device)


def set_storage(session: Write, slug: str, limit_bytes: int) -> StorageUse:
    """Change how much a team may store. What is stored stays; new uploads wait until the team is below again."""
    team_id = team_id_of(session, slug)
    set_storage_limit(session, team_id, limit_bytes)
    return storage_use(session, team_id)


def team_id_of(session: Read, slug: str) -> UUID:
    """The team of this name, for those who look after all teams.

    Raises:
        NotFound: there is none.
    """
    team_id = session.scalar(select(Team.id).where(Team.slug == slug))
    if team_id is None:
        raise NotFound(f"There is no team {slug[:40]!r}.")
    return team_id


def _note(session: Write, team_id: UUID, device: str, run_id: UUID, reason: str, slots: int) -> None:
    session.add(LedgerEntry(team_id=team_id, device=device, run_id=run_id, reason=reason, slots=slots))
    session.flush()


def _quota(session: Read, team_id: UUID, device: str) -> QuotaOut:
    row = session.execute(
        select(Quota.slots_limit, Quota.used).where(Quota.team_id == team_id, Quota.device == device)
    ).one_or_none()
    limit, used = row if row is not None else (0, 0)
    return QuotaOut(device=device, limit=limit, used=used)


def _quota_exceeded(quota: QuotaOut, asked: int) -> AppError:
    left = quota.limit - quota.used
    if left > 0:
        remedy = f"Ask for {left} or fewer, or wait until a run ends."
    elif quota.limit:
        remedy = "Wait until a run ends, or ask a site admin to raise the limit."
    else:
        remedy = "Ask a site admin to raise the limit."
    return AppError(
        "quota_exceeded",
        403,
        f"This run asks for {asked} {quota.device} slots; your team may use {quota.limit} and {quota.used} are taken. "
        f"{remedy}",
        extensions={"device": quota.device, "limit": quota.limit, "used": quota.used, "asked": asked},
    )
