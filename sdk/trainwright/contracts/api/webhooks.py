"""Webhooks in the Standard Webhooks format (https://www.standardwebhooks.com): signed messages about what happens in a team."""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import AwareDatetime, Field, field_validator

from trainwright.contracts.base import WEB_ADDRESS_PATTERN, Envelope, Strict


class WebhookEvent(StrEnum):
    RUN_ENDED = "run.ended"
    """A run succeeded or was cancelled."""
    RUN_FAILED = "run.failed"
    RUN_PAUSED_BY_LIMIT = "run.paused_by_limit"
    """A run was paused because hours, storage or its maximum run time were reached."""
    LIMIT_REACHED = "limit.reached"
    """80 or 100 % of a limit of the team, or of a member, is used."""
    NODE_QUARANTINED = "node.quarantined"
    """A node on which the team had a run in the last day gets no runs until it passes a self-test."""
    TEST = "test"
    """Sent on request, to every webhook."""


SUBSCRIBABLE = tuple(event for event in WebhookEvent if event is not WebhookEvent.TEST)


class NewWebhook(Strict):
    url: str = Field(max_length=500, pattern=WEB_ADDRESS_PATTERN)
    """Where messages are posted. Its host must have a public address, unless the operator allows others."""

    events: tuple[WebhookEvent, ...] = Field(default=SUBSCRIBABLE, min_length=1, max_length=10)

    @field_validator("url")
    @classmethod
    def _has_host(cls, url: str) -> str:
        """As a request needs it: `urlsplit` and the encoding of a name in the DNS raise `ValueError` otherwise."""
        try:
            parts = urlsplit(url)
            valid = (parts.hostname or "").encode("idna") and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(
                "This address has no valid host and port: write, for example, https://example.org/hook"
            )
        return url


class WebhookDelivery(Envelope):
    """A message, and how far its delivery is."""

    id: str
    """Header `webhook-id`, equal in all attempts."""

    event: WebhookEvent
    created: AwareDatetime
    attempts: int
    delivered: AwareDatetime | None
    next_attempt: AwareDatetime | None
    """Null if it was delivered or given up."""

    status: int | None
    """HTTP status of the last response."""

    error: str
    """Why the last attempt failed; empty if it did not."""


class Webhook(Envelope):
    id: str
    url: str
    events: list[WebhookEvent]
    created: AwareDatetime
    created_by: str
    deliveries: list[WebhookDelivery]
    """The newest ten."""


class CreatedWebhook(Webhook):
    secret: str
    """`whsec_…`, with which the receiver checks signatures. It is shown only once."""
