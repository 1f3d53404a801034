"""Delivering the messages of webhooks, in threads of each API process.

A message is claimed by moving its next attempt, in a transaction of its own, so no two processes send it at once. After a crash it
is sent again: receivers tell repetitions by their `webhook-id`.
"""

import threading
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import NamedTuple
from uuid import UUID

import structlog
from sqlalchemy import delete, func, select, update

from trainwright_backend.core.background import UNAVAILABLE, run_logging_errors
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
THREADS = 8
MAX_IN_FLIGHT_PER_TEAM = 2
"""Messages in flight. The team's other webhooks wait, so that a team with many slow addresses leaves threads to others."""

log = structlog.get_logger()


class DueWebhook(NamedTuple):
    """A webhook with messages that are due."""

    id: UUID
    team_id: UUID


@dataclass(frozen=True)
class Message:
    """A claimed message."""

    id: UUID
    webhook_id: UUID
    url: str
    body: str
    attempts: int
    """This one included."""


class WebhookSender:
    """Sends the messages of webhooks in a few threads.

    A webhook has one message in flight, and a team few, so a slow address delays only its own messages.
    A free thread takes the webhook whose team has the fewest messages in flight, and of these the one that waits longest.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._settings = database, settings
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="webhooks")
        self._lock = threading.Lock()
        self._team_of_busy: dict[UUID, UUID] = {}
        """The team of each webhook with a message in flight."""
        self.is_closed = False
        """Whether no further messages are sent."""

    def start_due(self) -> list[Future[None]]:
        """Send what is due in the free threads; returns their futures, which end when nothing is due."""
        started: list[Future[None]] = []
        with self._lock:
            while (webhook_id := self._take()) is not None:
                started.append(self._threads.submit(self._send_from, webhook_id))
        return started

    def close(self) -> None:
        """Wait for the messages in flight. No others are sent."""
        with self._lock:
            self.is_closed = True
        self._threads.shutdown()

    def _send_from(self, webhook_id: UUID) -> None:
        """Send one message of this webhook, then messages of other webhooks as long as any are due."""

        def send() -> None:
            free: UUID | None = webhook_id
            while free is not None:
                self._send_next(free)
                with self._lock:
                    free = self._take()

        run_logging_errors(send, "messages of webhooks were not delivered", expected=UNAVAILABLE)

    def _send_next(self, webhook_id: UUID) -> None:
        """Attempt a webhook's oldest due message, unless another process has taken it."""
        try:
            message = _claim(self._database, webhook_id)
            if message is not None:
                _attempt(self._database, self._settings, message)
        finally:
            with self._lock:
                del self._team_of_busy[webhook_id]

    def _take(self) -> UUID | None:
        """Reserve the webhook whose turn it is; None if no message is due, or no thread is free. The caller holds the lock."""
        if self.is_closed or len(self._team_of_busy) == THREADS:
            return None
        in_flight = Counter(self._team_of_busy.values())
        due = _due_webhooks(self._database, self._team_of_busy)
        startable = [hook for hook in due if in_flight[hook.team_id] < MAX_IN_FLIGHT_PER_TEAM]
        if not startable:
            return None
        chosen = min(startable, key=lambda hook: in_flight[hook.team_id])
        self._team_of_busy[chosen.id] = chosen.team_id
        return chosen.id


def _due_webhooks(database: Database, busy: Collection[UUID]) -> list[DueWebhook]:
    """The webhooks with due messages, without the ``busy`` ones. The longest due comes first."""
    due = (
        select(Webhook.id, Webhook.team_id)
        .join(WebhookDelivery, WebhookDelivery.webhook_id == Webhook.id)
        .where(WebhookDelivery.next_attempt <= now(), Webhook.id.not_in(busy))
        .group_by(Webhook.id, Webhook.team_id)
        .order_by(func.min(WebhookDelivery.next_attempt), Webhook.id)
    )
    with database.read() as session:
        return [DueWebhook(*row) for row in session.execute(due)]


def _claim(database: Database, webhook_id: UUID) -> Message | None:
    """Take the webhook's oldest message that is due."""
    mine = select(WebhookDelivery.id).where(
        WebhookDelivery.webhook_id == webhook_id, WebhookDelivery.next_attempt <= now()
    )
    taken = {"next_attempt": now() + CLAIM, "attempts": WebhookDelivery.attempts + 1}
    with database.write() as session:
        delivery_id = session.scalar(mine.order_by(WebhookDelivery.id).limit(1))
        due = (WebhookDelivery.id == delivery_id, WebhookDelivery.next_attempt <= now())
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
    """The status of the response, and the problem if it is not a success."""
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
            "The address redirects, and redirects are not followed. Use the address that it leads to.",
        )
    return status, "" if status < 300 else f"The address answered {status}."
