"""Device login: a program without a browser gets an API key, once a signed-in person approves it on the page `/sign-in/device`.

The flow is that of RFC 8628, with JSON bodies: errors are `ErrorBody`, whose `code` is the error code of that standard.
"""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from trainwright.contracts.api.people import KeyScope
from trainwright.contracts.base import NAME_PATTERN, Envelope, Strict


class NewDeviceLogin(Strict):
    """A program's request for an API key."""

    client: str = Field(min_length=1, max_length=80, pattern=NAME_PATTERN)
    """What the program calls itself, for the person who approves; also the name of the key."""

    scope: KeyScope = KeyScope.MANAGE
    lifetime_days: int | None = Field(default=90, ge=1, le=3_650)
    """Days after which the key expires. Null: never."""


class DeviceLogin(Envelope):
    """What the program shows, and how it waits."""

    device_code: str
    """Proves that the program is the one that asked. It is never shown."""

    user_code: str
    """What the person compares, or types."""

    verification_uri: str
    verification_uri_complete: str
    """The page with the code in its address."""

    expires_in: int
    """Seconds for which the codes are valid."""

    interval: int
    """Seconds between two polls."""


class DevicePoll(Strict):
    device_code: str = Field(max_length=100)


class DeviceRequest(Envelope):
    """What a program asks for, for the person who approves it."""

    user_code: str
    client: str
    address: str
    """Network address of the program."""

    scope: KeyScope
    lifetime_days: int | None
    created: AwareDatetime
    expires: AwareDatetime


class DeviceDecision(Strict):
    user_code: str = Field(max_length=20)
    approve: bool
