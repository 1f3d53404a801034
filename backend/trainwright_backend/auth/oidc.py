"""Signing in with the identity provider: the authorization code flow with PKCE, state and nonce (OpenID Connect Core, section 3.1).

A browser gets a signed cookie with a random token when it leaves for the provider. State, nonce and PKCE verifier are derived from
the token, so a response is of use only in the browser that began, for ten minutes, and the server stores nothing until the
provider has proved who the person is. The provider gives out tokens for a code once.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from itsdangerous import BadSignature, URLSafeTimedSerializer
from pydantic import BaseModel, ValidationError

from trainwright.contracts.api.oidc import ProviderCallback
from trainwright_backend.auth.identity_provider import IdentityProvider
from trainwright_backend.core.db import storable
from trainwright_backend.core.errors import Unauthorized
from trainwright_backend.core.security import keyed_hash, new_token
from trainwright_backend.core.settings import Settings

LIFETIME_SECONDS = 600
MAX_SUBJECT_LENGTH = 255
MAX_NAME_LENGTH = 80
MAX_EMAIL_LENGTH = 254
STATE_DIGITS = 32


class PendingSignIn(BaseModel):
    """What the cookie of a sign-in says."""

    token: str
    next: str
    """Page to open afterwards."""

    link_to: UUID | None = None
    """The signed-in account to which the identity is to be linked."""


@dataclass(frozen=True)
class Identity:
    """A person, as the provider proved them to be."""

    issuer: str
    subject: str
    email: str
    """Lower case; empty if the provider does not tell it."""

    email_verified: bool
    name: str
    groups: frozenset[str]


def redirect_uri(settings: Settings) -> str:
    """The page to which the provider sends people back. It must be registered there."""
    return f"{settings.public_url.rstrip('/')}/sign-in"


def begin(
    settings: Settings, provider: IdentityProvider, next_page: str, link_to: UUID | None = None
) -> tuple[str, str]:
    """The address at the provider, and the cookie for the browser."""
    pending = PendingSignIn(token=new_token(), next=next_page, link_to=link_to)
    challenge = hashlib.sha256(_derived(settings, "verifier", pending).encode()).digest()
    query = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": redirect_uri(settings),
        "scope": settings.oidc_scopes,
        "state": _state(settings, pending),
        "nonce": _derived(settings, "nonce", pending),
        "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    address = provider.discovery().authorization_endpoint
    joined = f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"
    return joined, _serializer(settings).dumps(pending.model_dump(mode="json"))


def read_pending_sign_in(settings: Settings, cookie: str, response: ProviderCallback) -> PendingSignIn:
    """What this browser began, if the provider's response belongs to it.

    Raises:
        Unauthorized: the browser began nothing, or too long ago, or something else.
    """
    try:
        pending = PendingSignIn.model_validate(_serializer(settings).loads(cookie, max_age=LIFETIME_SECONDS))
    except (BadSignature, ValidationError):
        raise _not_of_this_browser() from None
    if not hmac.compare_digest(_state(settings, pending).encode(), response.state.encode()):
        raise _not_of_this_browser()
    return pending


def prove(
    settings: Settings, provider: IdentityProvider, pending: PendingSignIn, response: ProviderCallback
) -> Identity:
    """Exchange the response's code for the proof of an identity. This asks the provider: call it without an open session.

    Raises:
        Unauthorized: the provider refused the person, or proves nothing.
        Busy: the provider cannot be used.
    """
    issuer_expected = provider.discovery().authorization_response_iss_parameter_supported
    if response.issuer != provider.issuer and (issuer_expected or response.issuer is not None):
        raise provider.unproven(f"the response is of the issuer {response.issuer!r}")
    if response.authorization_code is None:
        raise _refused(provider, response.error or "")
    tokens = provider.exchange(
        response.authorization_code, _derived(settings, "verifier", pending), redirect_uri(settings)
    )
    claims = provider.verify(tokens.id_token, _derived(settings, "nonce", pending))
    if tokens.access_token is not None and _lacks(settings, claims):
        more = provider.user_info(tokens.access_token)
        if more.get("sub", claims["sub"]) != claims["sub"]:
            raise provider.unproven("its userinfo endpoint describes another person")
        claims = more | claims
    return _identity(settings, provider, claims)


def _lacks(settings: Settings, claims: dict[str, Any]) -> bool:
    return "email" not in claims or (bool(settings.oidc_groups) and settings.oidc_groups_claim not in claims)


def _identity(settings: Settings, provider: IdentityProvider, claims: dict[str, Any]) -> Identity:
    subject = claims["sub"]
    if not 0 < len(subject) <= MAX_SUBJECT_LENGTH or storable(subject) != subject:
        raise provider.unproven("the subject is empty, too long, or no text")
    email = _text(claims.get("email")).strip().lower()
    groups = claims.get(settings.oidc_groups_claim)
    named = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    return Identity(
        issuer=provider.issuer,
        subject=subject,
        email=email if 3 <= len(email) <= MAX_EMAIL_LENGTH and "@" in email else "",
        email_verified=claims.get("email_verified") is True,
        name=_name(claims, email),
        groups=frozenset(group for group in named if isinstance(group, str)),
    )


def _name(claims: dict[str, Any], email: str) -> str:
    given = (_text(claims.get("name")), _text(claims.get("preferred_username")), email.partition("@")[0])
    return next((name for text in given if (name := text.strip()[:MAX_NAME_LENGTH].strip())), "Unnamed")


def _text(claim: object) -> str:
    """A claim's printable text."""
    return "".join(letter for letter in claim if letter.isprintable()) if isinstance(claim, str) else ""


def _state(settings: Settings, pending: PendingSignIn) -> str:
    return _derived(settings, "state", pending)[:STATE_DIGITS]


def _derived(settings: Settings, purpose: str, pending: PendingSignIn) -> str:
    return keyed_hash(settings.secret_key, f"oidc_{purpose}", pending.token)


def _serializer(settings: Settings) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(settings.secret_key.get_secret_value(), salt="trainwright.oidc")


def _refused(provider: IdentityProvider, error: str) -> Unauthorized:
    if error == "access_denied":
        detail = f"You did not sign in with {provider.label}, or it does not let you use Trainwright. Try again, or ask its administrator."
        return Unauthorized(detail, code="provider_refused")
    return provider.unproven(f"it answers {error!r} instead of a code")


def _not_of_this_browser() -> Unauthorized:
    detail = "This sign-in was not started in this browser, or in another tab since, or more than ten minutes ago. Start it again."
    return Unauthorized(detail, code="sign_in_not_started")
