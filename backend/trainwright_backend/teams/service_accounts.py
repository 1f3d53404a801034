"""Service accounts of a team: members without an address and a password, whose keys owners manage.

One is an account of its own and not keys of a person, so it works on when people leave, and its runs, limits, usage and entries in
the audit log are its own. It belongs to one team, is deleted with it, and can be no owner: nobody who was removed could use it to
let themselves in again.
"""

from uuid import UUID

from sqlalchemy import delete, func, select

from trainwright.contracts.api.people import CreatedKey, NewKey, Role
from trainwright.contracts.api.service_accounts import NewServiceAccount
from trainwright.contracts.api.service_accounts import ServiceAccount as ServiceAccountOut
from trainwright_backend.auth import keys
from trainwright_backend.auth.service import NO_PASSWORD
from trainwright_backend.auth.tables import Account, Membership
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import new_id, parse_id, public_id, unknown
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.members import lock_for_owner

MAX_SERVICE_ACCOUNTS = 50
NO_ADDRESS = "{id}@service.invalid"
"""Instead of an address, which the column requires. `.invalid` is the top-level domain that never exists (RFC 2606)."""


def list_service_accounts(session: Read, team_id: UUID) -> list[ServiceAccountOut]:
    """The service accounts of a team, by name, with their keys."""
    rows = session.execute(
        select(Account, Membership.role)
        .join(Membership, Membership.user_id == Account.id)
        .where(Account.service_of == team_id, Membership.team_id == team_id)
        .order_by(Account.name, Account.id)
    )
    return [_to_response(session, account, Role(role)) for account, role in rows]


def create_service_account(
    session: Write, team_id: UUID, caller_id: UUID, new: NewServiceAccount
) -> ServiceAccountOut:
    """Create a service account without keys.

    Raises:
        Forbidden: the caller is no longer an owner.
        Conflict: ``name_taken``, ``too_many_service_accounts``.
    """
    lock_for_owner(session, team_id, caller_id)
    own = (Account.service_of == team_id,)
    if session.scalar(select(Account.id).where(*own, Account.name == new.name.strip())) is not None:
        detail = f"The team has a service account {new.name.strip()!r}. Choose another name."
        raise Conflict.at("name", new.name, "name_taken", detail)
    if (session.scalar(select(func.count()).where(*own)) or 0) >= MAX_SERVICE_ACCOUNTS:
        detail = f"The team has {MAX_SERVICE_ACCOUNTS} service accounts. Delete one that nothing uses."
        raise Conflict("too_many_service_accounts", detail)
    account_id = new_id()
    account = Account(
        id=account_id,
        email=NO_ADDRESS.format(id=account_id.hex),
        name=new.name.strip(),
        password_hash=NO_PASSWORD,
        service_of=team_id,
    )
    session.add(account)
    session.flush()
    session.add(Membership(team_id=team_id, user_id=account.id, role=new.role))
    session.flush()
    return _to_response(session, account, new.role)


def delete_service_account(session: Write, team_id: UUID, caller_id: UUID, account: str) -> None:
    """Delete a service account with its keys. What it created stays in the team under its name.

    Raises:
        Forbidden: the caller is no longer an owner.
        NotFound: the team has no such service account.
    """
    lock_for_owner(session, team_id, caller_id)
    found = find_service_account(session, team_id, account)
    session.deleted_names = (found.name,)
    session.execute(delete(Account).where(Account.id == found.id))


def create_service_key(
    session: Write, settings: Settings, team_id: UUID, caller_id: UUID, account: str, new: NewKey
) -> CreatedKey:
    """Create a key of a service account. Its secret is only in the response.

    Raises:
        Forbidden: the caller is no longer an owner.
        NotFound: the team has no such service account.
        Conflict: it has too many keys.
    """
    lock_for_owner(session, team_id, caller_id)
    return keys.create_key(session, settings, find_service_account(session, team_id, account).id, new)


def delete_service_key(session: Write, team_id: UUID, account: str, key: str) -> None:
    """Revoke a key of a service account.

    Raises:
        NotFound: the team has no such service account, or it has no such key.
    """
    keys.delete_key(session, find_service_account(session, team_id, account).id, key)


def find_service_account(session: Read, team_id: UUID, account: str) -> Account:
    """A service account of the team.

    Raises:
        NotFound: it has none with this id; a person is none.
    """
    found = session.get(Account, parse_id("user", account))
    if found is None or found.service_of != team_id:
        raise unknown("user", account)
    return found


def _to_response(session: Read, account: Account, role: Role) -> ServiceAccountOut:
    return ServiceAccountOut(
        id=public_id("user", account.id),
        name=account.name,
        role=role,
        created=account.created,
        keys=keys.list_keys(session, account.id),
    )
