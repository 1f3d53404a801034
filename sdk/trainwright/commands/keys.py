"""Commands about the API keys of the key's owner."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from trainwright.commands.key_lifetime import KeyDays, NeverExpires, key_days
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    open_client,
    print_json,
    print_table,
    printable,
    table_of,
)
from trainwright.contracts.api.people import KeyScope

app = typer.Typer(no_args_is_help=True, help="List your API keys, create new ones and revoke them.")


@app.command("list")
def list_keys(key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List your API keys."""
    with open_client(server, key) as client:
        found = client.api_keys()
        if print_json(found, as_json):
            return
        table = table_of("name", "prefix", "scope", "expires", "last used")
        for item in found:
            expires = "never" if item.expires is None else _time(item.expires)
            used = "never" if item.last_used is None else _time(item.last_used)
            table.add_row(item.id, item.name, item.prefix, item.scope, expires, used)
        print_table(table, empty="No keys.")


@app.command("create")
def create(
    name: str,
    key: Key,
    server: Server = LOCAL_SERVER,
    scope: Annotated[
        KeyScope,
        typer.Option(
            help="read: what viewers may do; submit: what editors may do; manage: everything you may do."
        ),
    ] = KeyScope.MANAGE,
    days: KeyDays = None,
    never_expires: NeverExpires = False,
    as_json: AsJson = False,
) -> None:
    """Create an API key and print it. It is not shown again."""
    with open_client(server, key) as client:
        found = client.create_key(name, scope, key_days(days, never_expires))
        if print_json(found, as_json):
            return
        typer.echo(found.secret)


@app.command("revoke")
def revoke(key_id: str, key: Key, server: Server = LOCAL_SERVER) -> None:
    """Revoke an API key: programs that use it lose access immediately."""
    with open_client(server, key) as client:
        client.revoke_key(key_id)


@app.command("approve")
def approve(
    code: Annotated[str, typer.Argument(help="The code that the program shows.")],
    key: Key,
    server: Server = LOCAL_SERVER,
    refuse: Annotated[bool, typer.Option("--refuse", help="Deny the program access instead.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Approve a program that waits for a key (`trainwright login`), as the page /sign-in/device does."""
    with open_client(server, key) as client:
        asked = client.device_request(code)
        lifetime = (
            "never expires" if asked.lifetime_days is None else f"expires after {asked.lifetime_days} days"
        )
        typer.echo(
            f"{printable(asked.client)}, at {asked.address}, wants a key of yours with the scope {asked.scope} that {lifetime}."
        )
        verb = "Refuse" if refuse else "Approve"
        if not yes:
            typer.confirm(f"{verb} it?", abort=True)
        client.decide_device_login(code, approve=not refuse)
        typer.echo("Refused." if refuse else "Approved.")


def _time(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}"
