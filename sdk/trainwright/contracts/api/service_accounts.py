"""Service accounts: programs of a team that act as no person, such as a nightly job. They outlive the people who set them up."""

from __future__ import annotations

from pydantic import AwareDatetime, Field, field_validator

from trainwright.contracts.api.people import ApiKey, Role
from trainwright.contracts.base import NAME_PATTERN, Envelope, Strict


class NewServiceAccount(Strict):
    name: str = Field(min_length=1, max_length=80, pattern=NAME_PATTERN)
    role: Role = Role.EDITOR
    """What it may do at most: viewer or editor. Its keys may have less."""

    @field_validator("role")
    @classmethod
    def _is_no_owner(cls, role: Role) -> Role:
        if role is Role.OWNER:
            raise ValueError("a service account cannot be an owner: choose viewer or editor")
        return role


class ServiceAccount(Envelope):
    """A service account of a team, with its keys. It cannot sign in, and cannot be an owner."""

    id: str
    name: str
    role: Role
    created: AwareDatetime
    keys: list[ApiKey]
