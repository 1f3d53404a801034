"""Webhooks of a team."""

from trainwright.contracts.api.webhooks import CreatedWebhook, NewWebhook, Webhook, WebhookDelivery
from trainwright_backend.api.dependencies import CurrentSettings, ReadSession, WriteSession
from trainwright_backend.auth.policies import Owner
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter
from trainwright_backend.teams import webhooks

router = ResourceRouter(prefix="/teams/{team}/webhooks", tags=["webhooks"], route_class=GuardedRoute)


@router.get("")
def list_webhooks(access: Owner, session: ReadSession) -> list[Webhook]:
    """The team's webhooks, oldest first, with their newest messages. For owners."""
    return webhooks.list_webhooks(session, access.team_id)


@router.post("", status_code=201)
def create_webhook(
    new: NewWebhook, access: Owner, session: WriteSession, settings: CurrentSettings
) -> CreatedWebhook:
    """Have messages about the team posted to an address, in the Standard Webhooks format. The secret that checks their signatures is
    shown only in this response."""
    return webhooks.create_webhook(session, settings, access.team_id, new, access.user_name)


@router.delete("/{webhook}", status_code=204)
def delete_webhook(webhook: str, access: Owner, session: WriteSession) -> None:
    """Delete a webhook and its undelivered messages."""
    webhooks.delete_webhook(session, access.team_id, webhook)


@router.post("/{webhook}/test", status_code=202)
def test_webhook(webhook: str, access: Owner, session: WriteSession) -> WebhookDelivery:
    """Send a test message."""
    return webhooks.send_test(session, access.team_id, webhook, access.team_slug)
