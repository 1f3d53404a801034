"""Commands about the webhooks of a team."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    err,
    open_team,
    print_json,
    print_table,
    table_of,
)
from trainwright.contracts.api.webhooks import SUBSCRIBABLE, WebhookEvent

app = typer.Typer(
    no_args_is_help=True, help="Send signed messages about the team to other services. For owners."
)

_UNENCRYPTED = (
    "Messages to this address are sent unencrypted, so anyone on the network path can read them. The signature only shows"
    " whether they were changed. Use https:// if the receiver has it."
)


@app.command("list")
def list_webhooks(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List the webhooks, and whether their last message was delivered."""
    with open_team(server, key, team) as api:
        found = api.webhooks()
        if print_json(found, as_json):
            return
        table = table_of("address", "events", "last message", "error")
        for hook in found:
            last = next(iter(hook.deliveries), None)
            state = (
                "–" if last is None else f"{last.event}, {'delivered' if last.delivered else 'not delivered'}"
            )
            table.add_row(
                hook.id, hook.url, ", ".join(hook.events), state, "" if last is None else last.error
            )
        print_table(table, empty="No webhooks.")


@app.command("create")
def create(
    url: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    events: Annotated[
        list[WebhookEvent] | None, typer.Option("--event", help="Only this event; can be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a webhook and print its secret. It is not shown again."""
    with open_team(server, key, team) as api:
        found = api.create_webhook(url, events or SUBSCRIBABLE)
        if url.lower().startswith("http://"):
            err.print(_UNENCRYPTED, style="yellow", soft_wrap=True)
        if print_json(found, as_json):
            return
        typer.echo(found.secret)


@app.command("delete")
def delete(webhook_id: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Delete a webhook and its undelivered messages."""
    with open_team(server, key, team) as api:
        api.delete_webhook(webhook_id)


@app.command("test")
def test(
    webhook_id: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Send a test message."""
    with open_team(server, key, team) as api:
        found = api.test_webhook(webhook_id)
        if print_json(found, as_json):
            return
        typer.echo(found.id)
