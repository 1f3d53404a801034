# Generated from async_calls/webhooks.py by infra/sync_client.py. Change that file.
"""Calls about the webhooks of a team."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.calls.team import TeamCalls
from trainwright.contracts.api.webhooks import (
    SUBSCRIBABLE,
    CreatedWebhook,
    NewWebhook,
    Webhook,
    WebhookDelivery,
    WebhookEvent,
)


class WebhookCalls(TeamCalls):
    """Addresses that get signed messages about the team. For owners."""

    def webhooks(self) -> list[Webhook]:
        """The team's webhooks, oldest first, with their newest messages."""
        return self._client.get_list(f"{self._path}/webhooks", Webhook)

    def create_webhook(self, url: str, events: Sequence[WebhookEvent] = SUBSCRIBABLE) -> CreatedWebhook:
        """Create a webhook. Its secret, which checks signatures, is returned only here."""
        new = NewWebhook(url=url, events=tuple(events)).model_dump(mode="json")
        return self._client.post(f"{self._path}/webhooks", CreatedWebhook, json=new)

    def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook."""
        self._client.delete(f"{self._path}/webhooks/{webhook_id}")

    def test_webhook(self, webhook_id: str) -> WebhookDelivery:
        """Send a test message."""
        return self._client.post(f"{self._path}/webhooks/{webhook_id}/test", WebhookDelivery)
