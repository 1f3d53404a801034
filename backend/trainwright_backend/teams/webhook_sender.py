"""Delivering the messages of webhooks, in a thread of each API process.

A message is claimed by moving its next attempt, in a transaction of its own, so no two processes send it at once. After a crash it
is sent again: receivers tell repetitions by their `webhook-id`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from uuid import UUID

import structlog
from sqlalchemy import delete, select, update

from trainwright_backend.core.counters import WEBHOOK_ATTEMPTS
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.ids import public_id
from trainwright_backend.core.public_http import HTTPException, Network, failure_sentence, post
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.tables import Webhook, WebhookDelivery
from trainwright_backend.teams.webhooks import signature, signing_key

PAUSES = tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1_800, 7_200, 18_000, 36_000, 36_000))
"""Between attempts, as the Standard Webhooks specification advises. After the last one a message is given up."""
CLAIM = timedelta(minutes=2)
"""Longer than an attempt takes."""
KEPT = timedelta(days=30)
MAX_AT_ONCE = 50

log = structlog.get_logger()


@dataclass(frozen=True)
class Message:
    """A claimed message."""

    id: UUID
    webhook_id: UUID
    url: str
    body: str
    attempts: int
    """This one included."""


def deliver_due(database: Database, settings: Settings) -> int:
    """Attempt each message that is due, once, and return how many there were."""
    with database.read() as session:
        due = select(WebhookDelivery.id).where(WebhookDelivery.next_attempt <= now())
        ids = session.scalars(due.order_by(WebhookDelivery.id).limit(MAX_AT_ONCE)).all()
    for delivery_id in ids:
        message = _claim(database, delivery_id)
        if message is not None:
            _attempt(database, settings, message)
    return len(ids)


def _claim(database: Database, delivery_id: UUID) -> Message | None:
    """Take a message that is still due."""
    due = (WebhookDelivery.id == delivery_id, WebhookDelivery.next_attempt <= now())
    taken = {"next_attempt": now() + CLAIM, "attempts": WebhookDelivery.attempts + 1}
    with database.write() as session:
        if not session.change(update(WebhookDelivery).where(*due).values(**taken)):
            return None
        row = session.get_one(WebhookDelivery, delivery_id)
        session.execute(delete(WebhookDelivery).where(WebhookDelivery.created < now() - KEPT))
        url = session.get_one(Webhook, row.webhook_id).url
        return Message(row.id, row.webhook_id, url, row.body, row.attempts)


def _attempt(database: Database, settings: Settings, message: Message) -> None:
    status, error = _send(settings, message, settings.allowed_webhook_networks)
    delivered = status is not None and 200 <= status < 300
    given_up = message.attempts > len(PAUSES) or status == HTTPStatus.GONE
    values = {
        "status": status,
        "error": error,
        "delivered": now() if delivered else None,
        "next_attempt": None if delivered or given_up else now() + PAUSES[message.attempts - 1],
    }
    with database.write() as session:
        session.change(update(WebhookDelivery).where(WebhookDelivery.id == message.id).values(**values))
    WEBHOOK_ATTEMPTS.labels("delivered" if delivered else "given_up" if given_up else "failed").inc()


def _send(settings: Settings, message: Message, allowed: Sequence[Network]) -> tuple[int | None, str]:
    """The status of the answer, and why it is no success."""
    message_id, timestamp = public_id("msg", message.id), int(now().timestamp())
    key = signing_key(settings.secret_key, message.webhook_id)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "trainwright",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(key, message_id, timestamp, message.body),
    }
    try:
        status = post(message.url, message.body.encode(), headers, allowed)
    except (OSError, HTTPException, ValueError) as failure:
        log.info("webhook not delivered", webhook=str(message.webhook_id), error=str(failure))
        return None, failure_sentence(failure)[:300]
    if 300 <= status < 400:
        return (
            status,
            "The address answered with a redirect, which is not followed. Use the address that it leads to.",
        )
    return status, "" if status < 300 else f"The address answered {status}."
