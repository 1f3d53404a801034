"""Users, teams, and the limits of teams."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from trainwright.contracts.base import EMAIL_PATTERN, NAME_PATTERN, SLUG_PATTERN, Envelope, Strict

MIN_PASSWORD_LENGTH = 10
MAX_PASSWORD_LENGTH = 1_024


class Role(StrEnum):
    OWNER = "owner"
    EDITOR = "editor"
    VIEWER = "viewer"


class SignIn(Strict):
    email: str = Field(max_length=254)
    password: str = Field(max_length=MAX_PASSWORD_LENGTH)


class LinkPurpose(StrEnum):
    FIRST_OWNER = "first_owner"
    INVITATION = "invitation"
    SIGN_IN = "sign_in"


class LinkInfo(Envelope):
    """What a one-time link is for."""

    purpose: LinkPurpose
    email: str | None = None
    team: str | None = None
    needs_account: bool
    """Whether name, email address and a password are required. An invitation requires them of everybody who is not signed
    in with its address, whether or not the address has an account: its owner signs in first."""

    needs_password: bool = False
    """Whether the sign-in link must set a new password, because the account's address was never confirmed."""


class MailedLink(Strict):
    """Request for a sign-in link by email."""

    email: str = Field(min_length=3, max_length=254, pattern=EMAIL_PATTERN)


class OneTimeLink(Strict):
    """Uses a one-time link. The fields of the account are required if `LinkInfo.needs_account` is true.

    With a sign-in link, `password` is the account's new password.
    """

    token: str
    name: str | None = Field(default=None, min_length=1, max_length=80)
    email: str | None = Field(default=None, min_length=3, max_length=254, pattern=EMAIL_PATTERN)
    password: str | None = Field(default=None, min_length=MIN_PASSWORD_LENGTH, max_length=MAX_PASSWORD_LENGTH)
    team: str | None = Field(default=None, pattern=SLUG_PATTERN)
    """Slug of the first team, for the first owner."""


class Membership(Envelope):
    slug: str
    name: str
    role: Role


class Me(Envelope):
    id: str
    name: str
    email: str
    site_admin: bool
    email_verified: bool = True
    """Whether your address has been confirmed. Until then, you cannot join another team."""

    has_password: bool = True
    """Whether you can sign in with a password, and not only with the identity provider."""

    service: bool = False
    """Whether this is a service account, and no person."""

    teams: list[Membership]


class ProfileChange(Strict):
    name: str = Field(min_length=1, max_length=80, pattern=NAME_PATTERN)
    """Your name, as others see it. Runs and datasets keep the name under which you created them."""


class PasswordChange(Strict):
    current_password: str = Field(max_length=MAX_PASSWORD_LENGTH)
    password: str = Field(min_length=MIN_PASSWORD_LENGTH, max_length=MAX_PASSWORD_LENGTH)
    """The new password."""


class AccountDeletion(Strict):
    current_password: str = Field(max_length=MAX_PASSWORD_LENGTH)


class SignedInBrowser(Envelope):
    """A browser in which a person is signed in."""

    id: str
    created: AwareDatetime
    expires: AwareDatetime
    current: bool
    """Whether it is the one that sent this request."""

    device: str = ""
    """Browser and system of its last use, such as `Firefox on Linux`, as they name themselves; empty if unknown."""

    address: str = ""
    """Network address of its last use."""

    last_used: AwareDatetime | None = None
    provider: str = ""
    """Name of the identity provider with which the person signed in; empty after a password or a link."""


class KeyScope(StrEnum):
    """The part of its owner's rights that an API key has. Each scope includes the previous one."""

    READ = "read"
    """What viewers may do: read everything, and save views of lists."""
    SUBMIT = "submit"
    """What editors may do: also upload data, start and change runs."""
    MANAGE = "manage"
    """Everything: also people, keys, sessions, and what only site admins may do."""


class ApiKey(Envelope):
    id: str
    name: str
    prefix: str
    created: AwareDatetime
    last_used: AwareDatetime | None
    """Time of its last use, at most a minute late."""

    scope: KeyScope = KeyScope.MANAGE
    expires: AwareDatetime | None = None
    """Null: it is valid until it is revoked."""


class NewKey(Strict):
    name: str = Field(min_length=1, max_length=80, pattern=NAME_PATTERN)
    scope: KeyScope = KeyScope.MANAGE
    lifetime_days: int | None = Field(default=None, ge=1, le=3_650)
    """Days after which the key expires. Null: never."""


class CreatedKey(ApiKey):
    secret: str
    """The key itself. It is never shown again."""


class NewTeam(Strict):
    slug: str = Field(pattern=SLUG_PATTERN)
    name: str = Field(min_length=1, max_length=80)


class TeamChange(Strict):
    name: str = Field(min_length=1, max_length=80, pattern=NAME_PATTERN)
    """The team's name, as people read it. Its slug never changes: addresses, scripts and links contain it."""


class Quota(Envelope):
    """Slots of one device type that a team may occupy at the same time. Further runs wait in the queue."""

    device: str
    limit: int
    used: int
    """Slots of the runs that are on a node. Runs that wait use none."""

    guaranteed_slots: int = 0
    """The team's share. Its runs within it go before runs that borrow, and get slots back from them. Slots that are used beyond
    it are borrowed."""

    joined: int | None = None
    """Slots of this type on the joined nodes, used by any team or free. Null in a list of teams."""

    warning: str | None = None
    """Set in the response to a change, if the shares of all teams together exceed the slots of the joined nodes."""


class QuotaLimit(Strict):
    limit: int = Field(ge=0, le=1_000_000)
    """Slots that the team may occupy at the same time."""

    guaranteed_slots: int | None = Field(default=None, ge=0, le=1_000_000)
    """The team's share, at most its limit. Null: it stays as it is."""


class StorageUse(Envelope):
    """Storage of a team's uploaded files. Unfinished uploads count with their announced size, and identical files count once.
    The limit applies to these files only: checkpoints and exports are reported separately and never rejected."""

    limit_bytes: int
    used_bytes: int


class StorageLimit(Strict):
    limit_bytes: int = Field(ge=0, le=2**60)


class Team(Envelope):
    slug: str
    name: str
    quota: list[Quota] = []
    storage: StorageUse


class Member(Envelope):
    id: str
    name: str
    email: str
    """Empty for a service account."""

    role: Role
    service: bool = False
    """Whether it is a service account, and no person."""


class RunsOfRemoved(StrEnum):
    """What happens to the unfinished runs of a person who is removed from a team."""

    KEEP = "keep"
    """They continue."""
    CANCEL = "cancel"


class MemberChange(Strict):
    role: Role


class NewInvitation(Strict):
    email: str = Field(min_length=3, max_length=254, pattern=EMAIL_PATTERN)
    role: Role = Role.VIEWER


class PendingInvitation(Envelope):
    """An invitation whose link has not been used and has not expired."""

    id: str
    email: str
    role: Role
    expires: AwareDatetime


class Invitation(PendingInvitation):
    """A new invitation, with its link."""

    link: str
    """One-time link to send to the invited person. It is shown only once."""

    warning: str | None = None
    """A warning that the link works on the server's own machine only, and what to do about it."""
