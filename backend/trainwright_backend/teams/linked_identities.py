"""Which account a person at the identity provider signs in to (ADR 57).

Issuer and subject are the key. An address finds an account only if the operator trusts the provider for that, and the account's
own address is confirmed; never the account of a site admin. Otherwise the account's owner links the identity, after typing the
password. Groups give memberships at each sign-in, and nothing gives the rights of a site admin.
"""

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import delete, or_, select
from sqlalchemy.exc import IntegrityError

from trainwright.contracts.api.oidc import LinkedIdentity
from trainwright.contracts.api.people import Role
from trainwright_backend.auth.oidc import Identity
from trainwright_backend.auth.policies import ROLE_RANK
from trainwright_backend.auth.service import NO_PASSWORD, account_by_email
from trainwright_backend.auth.tables import Account, ExternalIdentity, Membership, Team
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict, Unauthorized
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.core.oidc_settings import NewAccounts
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.members import follow_groups


def account_of(session: Write, settings: Settings, identity: Identity) -> Account:
    """The account to which a person signs in. It is created or linked at the first sign-in, if the settings permit that.

    Raises:
        Unauthorized: they do not; the error says what to do.
        Conflict: another request of this person created the account at the same time, or the installation has no owner yet.
    """
    linked = session.scalar(
        select(ExternalIdentity).where(
            ExternalIdentity.issuer == identity.issuer, ExternalIdentity.subject == identity.subject
        )
    )
    if linked is not None:
        linked.email, linked.last_used = identity.email, now()
        account = session.get_one(Account, linked.user_id)
    else:
        account = _linked_by_address(session, settings, identity) or _new_account(session, settings, identity)
        link(session, account.id, identity)
    _apply_groups(session, settings, account.id, identity.groups)
    return account


def link(session: Write, user_id: UUID, identity: Identity) -> None:
    """Link an identity to an account, so that it signs in to it.

    Raises:
        Conflict: the identity, or the account, is linked already.
    """
    session.add(
        ExternalIdentity(
            issuer=identity.issuer, subject=identity.subject, user_id=user_id, email=identity.email
        )
    )
    detail = (
        "This identity signs in to another account already, or your account is linked to another identity. Unlink that one on the "
        "Settings page first."
    )
    _flush(session, Conflict("identity_linked", detail))


def list_identities(session: Read, user_id: UUID) -> list[LinkedIdentity]:
    """The identities that sign in to an account, oldest first."""
    rows = session.scalars(
        select(ExternalIdentity).where(ExternalIdentity.user_id == user_id).order_by(ExternalIdentity.id)
    )
    return [
        LinkedIdentity(
            id=public_id("identity", row.id),
            issuer=row.issuer,
            subject=row.subject,
            email=row.email,
            created=row.created,
            last_used=row.last_used,
        )
        for row in rows
    ]


def unlink(session: Write, user_id: UUID, identity: str) -> None:
    """Unlink an identity of the person.

    Raises:
        NotFound: they have no such identity.
        Conflict: they could not sign in any more.
    """
    account = session.get_one(Account, user_id, with_for_update=True)
    row = session.get(ExternalIdentity, parse_id("identity", identity))
    if row is None or row.user_id != user_id:
        raise unknown("identity", identity)
    if account.password_hash == NO_PASSWORD:
        detail = (
            "Your account has no password, so you could no longer sign in. Set one first: request a sign-in link, or ask the "
            "operator for one (`trainwright-server link sign-in` with your address)."
        )
        raise Conflict("no_password", detail)
    session.deleted_names = (row.email or row.subject,)
    session.execute(delete(ExternalIdentity).where(ExternalIdentity.id == row.id))


def _linked_by_address(session: Read, settings: Settings, identity: Identity) -> Account | None:
    """The account with the person's address; None if no account has it.

    Raises:
        Unauthorized: there is one, but the address does not prove that it is theirs.
    """
    account = account_by_email(session, identity.email)
    if account is None:
        return None
    proven = settings.oidc_trust_email and identity.email_verified
    if proven and account.email_verified and not account.site_admin:
        return account
    detail = (
        f"An account with the address {identity.email} exists, but is not linked to {settings.oidc_label}. Sign in with its "
        "password, and link it on the Settings page."
    )
    raise Unauthorized(detail, code="account_not_linked")


def _new_account(session: Write, settings: Settings, identity: Identity) -> Account:
    wanted = settings.oidc_new_accounts
    in_group = bool(_roles(settings, identity.groups))
    if wanted is NewAccounts.NOBODY or (wanted is NewAccounts.GROUPS and not in_group):
        detail = (
            f"{settings.oidc_label} confirmed who you are, but you have no account here. Ask an owner of your team for an "
            "invitation" + (", or to be added to the team's group." if wanted is NewAccounts.GROUPS else ".")
        )
        raise Unauthorized(detail, code="no_account")
    if not identity.email:
        detail = (
            f"{settings.oidc_label} did not tell your email address, which an account needs. Ask the operator to request it "
            "(TRAINWRIGHT_OIDC_SCOPES)."
        )
        raise Unauthorized(detail, code="no_address")
    if session.scalar(select(Account.id).limit(1)) is None:
        detail = (
            "This installation has no owner yet. Open the link that the server printed at its start first."
        )
        raise Conflict("not_set_up", detail)
    account = Account(
        email=identity.email,
        name=identity.name,
        password_hash=NO_PASSWORD,
        email_verified=settings.oidc_trust_email and identity.email_verified,
    )
    session.add(account)
    detail = "Another request created an account with your address at the same time. Sign in again."
    _flush(session, Conflict("email_taken", detail))
    return account


def _flush(session: Write, refusal: Conflict) -> None:
    try:
        session.flush()
    except IntegrityError:
        raise refusal from None


def _apply_groups(session: Write, settings: Settings, user_id: UUID, groups: Iterable[str]) -> None:
    roles = _roles(settings, groups)
    by_groups = select(Membership.team_id).where(Membership.user_id == user_id, Membership.by_groups)
    concerned = select(Team).where(or_(Team.slug.in_(roles), Team.id.in_(by_groups))).order_by(Team.id)
    for team in session.scalars(concerned).all():
        follow_groups(session, team.id, user_id, roles.get(team.slug))


def _roles(settings: Settings, groups: Iterable[str]) -> dict[str, Role]:
    """The highest role in each team that the groups give."""
    found: dict[str, Role] = {}
    for group in groups:
        for slug, role in settings.oidc_groups.get(group, {}).items():
            found[slug] = max(role, found.get(slug, role), key=ROLE_RANK.__getitem__)
    return found
