"""People, teams, and what a team may use."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from trainwright.contracts.base import EMAIL_PATTERN, SLUG_PATTERN, Envelope, Strict


class Role(StrEnum):
    OWNER = "owner"
    EDITOR = "editor"
    VIEWER = "viewer"


class SignIn(Strict):
    email: str = Field(max_length=254)
    password: str = Field(max_length=1_024)


class LinkPurpose(StrEnum):
    FIRST_OWNER = "first_owner"
    INVITATION = "invitation"
    SIGN_IN = "sign_in"


class LinkInfo(Envelope):
    """What a one-time link will do."""

    purpose: LinkPurpose
    email: str | None = None
    team: str | None = None
    needs_account: bool
    """The link asks for name, e-mail and a password."""


class OneTimeLink(Strict):
    """Uses a one-time link. The account's fields are needed where `LinkInfo.needs_account` says so."""

    token: str
    name: str | None = Field(default=None, min_length=1, max_length=80)
    email: str | None = Field(default=None, min_length=3, max_length=254, pattern=EMAIL_PATTERN)
    password: str | None = Field(default=None, min_length=10, max_length=1_024)
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
    teams: list[Membership]


class ApiKey(Envelope):
    id: str
    name: str
    prefix: str
    created: AwareDatetime
    last_used: AwareDatetime | None


class NewKey(Strict):
    name: str = Field(min_length=1, max_length=80)


class CreatedKey(ApiKey):
    secret: str
    """The key itself; it is never shown again."""


class NewTeam(Strict):
    slug: str = Field(pattern=SLUG_PATTERN)
    name: str = Field(min_length=1, max_length=80)


class Quota(Envelope):
    """Slots of one kind of device that a team may occupy at once."""

    device: str
    limit: int
    used: int


class QuotaLimit(Strict):
    limit: int = Field(ge=0, le=1_000_000)


class StorageUse(Envelope):
    """What a team's uploaded files occupy, unfinished uploads by their announced size; the same bytes count once. The
    limit is enforced for these alone: checkpoints and exports are told apart and never refused."""

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
    role: Role


class NewInvitation(Strict):
    email: str = Field(min_length=3, max_length=254, pattern=EMAIL_PATTERN)
    role: Role


class OpenInvitation(Envelope):
    """Nobody has used its link yet, and it still works."""

    id: str
    email: str
    role: Role
    expires: AwareDatetime


class Invitation(OpenInvitation):
    """As its maker sees it, once."""

    link: str
    """One-time address to send to the person; shown once."""
