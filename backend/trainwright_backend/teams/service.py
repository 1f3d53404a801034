"""Teams. `members` manages their people, `slot_quota` and `storage_quota` what they use."""

from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from trainwright.contracts.api.people import NewTeam, QuotaLimit, Role, StorageUse
from trainwright.contracts.api.people import Quota as QuotaOut
from trainwright.contracts.api.people import Team as TeamOut
from trainwright_backend.auth.tables import Membership, Team
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict, Invalid, NotFound
from trainwright_backend.teams.reserved_slugs import RESERVED_SLUGS
from trainwright_backend.teams.slot_quota import DEVICES, get_quota
from trainwright_backend.teams.storage_quota import set_storage_limit, storage_use
from trainwright_backend.teams.tables import Quota, StorageQuota
from trainwright_backend.teams.team_locks import hold_team


def create_team(
    session: Write, new: NewTeam, owner_id: UUID, slots_limit: int, storage_limit_gib: int
) -> TeamOut:
    """Create a team with its first owner and its quotas. ``slots_limit`` applies to each kind of device."""
    if new.slug in RESERVED_SLUGS:
        raise Invalid.at(
            "slug", "The platform uses this address itself. Choose another short name.", new.slug
        )
    team = Team(slug=new.slug, name=new.name)
    try:
        with session.begin_nested():
            session.add(team)
    except IntegrityError:
        detail = f"A team {new.slug!r} exists already. Choose another short name."
        raise Conflict.at("slug", new.slug, "slug_taken", detail) from None
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
        quota=[get_quota(session, team_id, device) for device in DEVICES],
        storage=storage_use(session, team_id),
    )


def list_teams(session: Read, user_id: UUID) -> list[TeamOut]:
    """The person's teams."""
    ids = session.scalars(
        select(Team.id).join(Membership).where(Membership.user_id == user_id).order_by(Team.slug)
    )
    return [show_team(session, team_id) for team_id in ids]


def rename_team(session: Write, team_id: UUID, name: str) -> TeamOut:
    """Change a team's name. Its slug stays."""
    session.change(update(Team).where(Team.id == team_id).values(name=name.strip()))
    return show_team(session, team_id)


def set_quota(session: Write, slug: str, device: str, new: QuotaLimit) -> QuotaOut:
    """Change a team's limit, and its share if one is given. Running runs continue; waiting ones start once the use is below the
    limit.

    Raises:
        Invalid: the share would exceed the limit.
    """
    if device not in DEVICES:
        raise NotFound(f"There is no device {device[:40]!r}. Choose one of {', '.join(DEVICES)}.")
    team_id = team_id_of(session, slug)
    mine = (Quota.team_id == team_id, Quota.device == device)
    quota = session.scalars(select(Quota).where(*mine).with_for_update()).one()
    share = quota.guaranteed_slots if new.guaranteed_slots is None else new.guaranteed_slots
    if share > new.limit:
        rule = (
            f"A team's share is at most its limit, and {share} slots are more than {new.limit}. Lower guaranteed_slots or raise "
            "limit."
        )
        raise Invalid.at("guaranteed_slots", rule, share)
    quota.slots_limit, quota.guaranteed_slots = new.limit, share
    session.flush()
    return get_quota(session, team_id, device)


def set_storage(session: Write, slug: str, limit_bytes: int) -> StorageUse:
    """Change how much a team can store. Stored files stay; new uploads must wait until the use is below the limit."""
    team_id = team_id_of(session, slug)
    set_storage_limit(session, team_id, limit_bytes)
    return storage_use(session, team_id)


def team_id_of(session: Write, slug: str) -> UUID:
    """The id of a team, by its slug, for site admins. Nobody deletes it until this transaction ends.

    Raises:
        NotFound: there is no such team.
    """
    team_id = session.scalar(select(Team.id).where(Team.slug == slug))
    if team_id is None:
        raise NotFound(f"There is no team {slug[:40]!r}. `trainwright teams list` shows your teams.")
    hold_team(session, team_id)
    return team_id
