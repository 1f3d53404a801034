"""Sign-in with an identity provider (OpenID Connect), and the identities that are linked to an account."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from trainwright.contracts.api.people import MAX_PASSWORD_LENGTH, Me
from trainwright.contracts.base import Envelope, Strict


class SignInProvider(Envelope):
    """The identity provider of this installation."""

    name: str | None
    """Its name; null if people sign in with passwords only."""


class ProviderSignIn(Strict):
    """Begins a sign-in with the provider."""

    next: str = Field(default="/", max_length=2_000)
    """Page of this site to open afterwards."""


class ProviderAddress(Envelope):
    """Where the browser goes next."""

    url: str


class ProviderCallback(Strict):
    """The parameters with which the provider sent the browser back: a code, or an error."""

    state: str = Field(max_length=200)
    authorization_code: str | None = Field(default=None, max_length=8_000)
    error: str | None = Field(default=None, max_length=200)
    issuer: str | None = Field(default=None, max_length=2_000)
    """Its parameter `iss`."""


class ProviderSignedIn(Envelope):
    """The person who is signed in, and the page that they wanted."""

    me: Me
    next: str


class IdentityLink(Strict):
    """Begins to link an identity to your account."""

    current_password: str = Field(max_length=MAX_PASSWORD_LENGTH)
    next: str = Field(default="/", max_length=2_000)
    """Page of this site to open afterwards."""


class LinkedIdentity(Envelope):
    """A person at an identity provider who signs in to this account."""

    id: str
    issuer: str
    subject: str
    """What the provider calls the person; it never changes."""

    email: str
    """Their address at the provider at the last sign-in; empty if it did not tell."""

    created: AwareDatetime
    last_used: AwareDatetime
