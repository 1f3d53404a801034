"""Webhooks of a team: creating and deleting them, and queueing their messages in the transaction of the change.

Messages have the Standard Webhooks format. The secret of a webhook is derived from the server's secret and the webhook's id, so
a copy of the database signs nothing. `webhook_sender` delivers.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import SecretStr
from sqlalchemy import delete, func, select

from trainwright.contracts.api.webhooks import CreatedWebhook, NewWebhook, WebhookEvent
from trainwright.contracts.api.webhooks import Webhook as WebhookOut
from trainwright.contracts.api.webhooks import WebhookDelivery as WebhookDeliveryOut
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.core.public_http import is_refused_literal
from trainwright_backend.core.settings import Settings
from trainwright_backend.teams.tables import Webhook, WebhookDelivery
from trainwright_backend.teams.team_locks import lock_team

MAX_WEBHOOKS = 20
SHOWN_DELIVERIES = 10


def create_webhook(
    session: Write, settings: Settings, team_id: UUID, new: NewWebhook, by: str
) -> CreatedWebhook:
    """Create a webhook. Its secret is only in the response.

    Raises:
        Conflict: ``too_many_webhooks``.
        Invalid: its host is an IP address to which nothing would be sent. A name is checked when something is sent.
    """
    if is_refused_literal(new.url, settings.allowed_webhook_networks):
        rule = (
            "This is not a public address, so nothing would be sent to it. Use the address of a host on the internet, or ask an "
            "operator to allow its network (TRAINWRIGHT_WEBHOOK_NETWORKS)."
        )
        raise Invalid.at("url", rule, new.url)
    lock_team(session, team_id)
    if (session.scalar(select(func.count()).where(Webhook.team_id == team_id)) or 0) >= MAX_WEBHOOKS:
        raise Conflict("too_many_webhooks", f"The team has {MAX_WEBHOOKS} webhooks. Delete one first.")
    events = [event.value for event in dict.fromkeys(new.events)]
    row = Webhook(team_id=team_id, url=new.url, events=events, created_by_name=by)
    session.add(row)
    session.flush()
    session.created_id = public_id("hook", row.id)
    secret = f"whsec_{base64.b64encode(signing_key(settings.secret_key, row.id)).decode()}"
    return CreatedWebhook(**_show(session, row).model_dump(), secret=secret)


def list_webhooks(session: Read, team_id: UUID) -> list[WebhookOut]:
    """The team's webhooks, oldest first, with their newest messages."""
    rows = session.scalars(select(Webhook).where(Webhook.team_id == team_id).order_by(Webhook.id))
    return [_show(session, row) for row in rows]


def delete_webhook(session: Write, team_id: UUID, webhook: str) -> None:
    """Delete a webhook, with what was not delivered yet."""
    row = _find(session, team_id, webhook)
    address = urlsplit(row.url)
    session.deleted_names = (f"{address.scheme}://{address.netloc}",)  # the path may contain a token
    session.execute(delete(Webhook).where(Webhook.id == row.id))


def send_test(session: Write, team_id: UUID, webhook: str, team: str) -> WebhookDeliveryOut:
    """Queue a test message."""
    row = _find(session, team_id, webhook)
    return _show_delivery(_queue(session, row, WebhookEvent.TEST, {"team": team}))


def queue_message(session: Write, team_id: UUID, event: WebhookEvent, data: Mapping[str, Any]) -> None:
    """Queue a message to the team's webhooks that want ``event``."""
    for row in session.scalars(select(Webhook).where(Webhook.team_id == team_id)).all():
        if event.value in row.events:
            _queue(session, row, event, data)


def signing_key(secret_key: SecretStr, webhook_id: UUID) -> bytes:
    """The key of a webhook's signatures, 32 bytes."""
    message = b"webhook\0" + webhook_id.bytes
    return hmac.new(secret_key.get_secret_value().encode(), message, hashlib.sha256).digest()


def signature(key: bytes, message_id: str, timestamp: int, body: str) -> str:
    """The header `webhook-signature` (Standard Webhooks, symmetric: HMAC-SHA256 of id, timestamp and body)."""
    signed = hmac.new(key, f"{message_id}.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def _queue(session: Write, row: Webhook, event: WebhookEvent, data: Mapping[str, Any]) -> WebhookDelivery:
    at = now()
    body = json.dumps({"type": event, "timestamp": at.isoformat(), "data": dict(data)})
    queued = WebhookDelivery(webhook_id=row.id, event=event, body=body, created=at, next_attempt=at)
    session.add(queued)
    session.flush()
    return queued


def _find(session: Read, team_id: UUID, webhook: str) -> Webhook:
    row = session.get(Webhook, parse_id("hook", webhook))
    if row is None or row.team_id != team_id:
        raise unknown("hook", webhook)
    return row


def _show(session: Read, row: Webhook) -> WebhookOut:
    newest = (
        select(WebhookDelivery)
        .where(WebhookDelivery.webhook_id == row.id)
        .order_by(WebhookDelivery.id.desc())
        .limit(SHOWN_DELIVERIES)
    )
    return WebhookOut(
        id=public_id("hook", row.id),
        url=row.url,
        events=[WebhookEvent(event) for event in row.events],
        created=row.created,
        created_by=row.created_by_name,
        deliveries=[_show_delivery(item) for item in session.scalars(newest)],
    )


def _show_delivery(row: WebhookDelivery) -> WebhookDeliveryOut:
    return WebhookDeliveryOut(
        id=public_id("msg", row.id),
        event=WebhookEvent(row.event),
        created=row.created,
        attempts=row.attempts,
        delivered=row.delivered,
        next_attempt=row.next_attempt,
        status=row.status,
        error=row.error,
    )
