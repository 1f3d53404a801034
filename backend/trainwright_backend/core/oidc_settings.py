"""The settings of sign-in with an identity provider (OpenID Connect), ``TRAINWRIGHT_OIDC_…``. Without an issuer there is none."""

import json
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode

from trainwright.contracts.api.people import Role

LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]
PREFIX = "TRAINWRIGHT_OIDC_"


class NewAccounts(StrEnum):
    """Who gets an account at their first sign-in."""

    NOBODY = "nobody"
    GROUPS = "groups"
    """People whose groups give them a role in a team."""
    ANYONE = "anyone"


class OidcSettings(BaseSettings):
    """The identity provider, and what its claims give. A validator of `Settings` with the name of one here would replace it."""

    oidc_issuer: str | None = Field(default=None, max_length=255)
    """Address of an OpenID Connect provider with which people can sign in, exactly as in its discovery document. https, except on
    this machine."""

    oidc_client_id: str | None = None
    """Id of this installation at the provider."""

    oidc_client_secret: SecretStr | None = None
    """Secret of this installation at the provider."""

    oidc_name: str | None = Field(default=None, max_length=80)
    """Name of the provider on the sign-in page; the host of the issuer when empty."""

    oidc_scopes: str = "openid email profile"
    """Scopes to request. Some providers send groups only with a scope of their own."""

    oidc_groups_claim: str = "groups"
    """Claim with the names of a person's groups."""

    oidc_groups: Annotated[dict[str, dict[str, Role]], NoDecode] = {}
    """Roles in teams that groups give, as JSON: `{"ml-lab": {"vision-lab": "editor"}}` is a group, a team's slug and a role."""

    oidc_new_accounts: NewAccounts = NewAccounts.GROUPS
    """Who gets an account at their first sign-in: `nobody`, people with one of these `groups`, or `anyone` at the provider."""

    oidc_trust_email: bool = False
    """Whether the provider proves that addresses belong to people: an account with a confirmed address is then linked to the
    person with that address (`email_verified`). Accounts of site admins never are."""

    oidc_networks: Annotated[list[str], NoDecode] = []
    """Networks, such as `10.0.0.0/8`, in which the provider may be, besides public addresses."""

    oidc_session_hours: float = Field(default=24.0, gt=0, le=24 * 14)
    """Hours after which people who signed in with the provider do so again, which also updates their groups."""

    @field_validator("oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_name", mode="before")
    @classmethod
    def _empty_is_no_provider(cls, given: object) -> object:
        return None if given == "" else given

    @field_validator("oidc_groups", "oidc_networks", mode="before")
    @classmethod
    def _is_oidc_json(cls, given: object, info: ValidationInfo) -> object:
        if not isinstance(given, str):
            return given
        example = (
            '{"ml-lab": {"vision-lab": "editor"}}' if info.field_name == "oidc_groups" else '["10.0.0.0/8"]'
        )
        try:
            return json.loads(given or ("{}" if info.field_name == "oidc_groups" else "[]"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{given!r} is not JSON ({error}): write {example}") from None

    @field_validator("oidc_issuer")
    @classmethod
    def _is_an_issuer(cls, given: str | None) -> str | None:
        if given is not None and not is_protected(given):
            raise ValueError(
                f"{given!r} is not the address of a provider: write https://login.example.org, without query or fragment"
            )
        return given

    @field_validator("oidc_scopes")
    @classmethod
    def _asks_for_an_identity(cls, given: str) -> str:
        if "openid" not in given.split():
            raise ValueError(f"{given!r} lacks the scope openid, without which a provider sends no identity")
        return given

    @field_validator("oidc_networks")
    @classmethod
    def _names_oidc_networks(cls, given: list[str]) -> list[str]:
        for network in given:
            ip_network(network)
        return given

    @model_validator(mode="after")
    def _has_a_complete_provider(self) -> Self:
        required = {name: getattr(self, f"oidc_{name}") for name in ("issuer", "client_id", "client_secret")}
        missing = [f"{PREFIX}{name.upper()}" for name, value in required.items() if value is None]
        if missing and len(missing) < len(required):
            raise ValueError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: set the issuer, the client's id and its secret, or none of them"
            )
        return self

    @property
    def oidc_label(self) -> str:
        """The provider's name for people."""
        return self.oidc_name or (urlsplit(self.oidc_issuer or "").hostname or "")[:80]

    @property
    def allowed_oidc_networks(self) -> list[IPv4Network | IPv6Network]:
        """The networks in which the provider may be, besides public addresses: this machine, if its issuer is there."""
        given = [ip_network(network) for network in self.oidc_networks]
        return [*given, *LOOPBACK] if is_loopback(self.oidc_issuer or "") else given


def is_protected(url: str) -> bool:
    """Whether nobody can read or change what is sent to ``url``: it is https, or on this machine."""
    parts = urlsplit(url)
    whole = bool(parts.hostname) and not (parts.query or parts.fragment or parts.username)
    return whole and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url)))


def is_loopback(url: str) -> bool:
    """Whether the host of ``url`` is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
