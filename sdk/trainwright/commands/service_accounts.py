"""Commands about the service accounts of a team, for owners."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.client import TeamClient
from trainwright.commands.key_lifetime import KeyDays, NeverExpires, key_days
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    open_team,
    print_error,
    print_json,
    print_table,
    table_of,
)
from trainwright.contracts.api.people import KeyScope, Role, RunsOfRemoved

app = typer.Typer(
    no_args_is_help=True,
    help="Service accounts: members of the team that are programs, not people. For owners.",
)

Account = Annotated[str, typer.Argument(help="Id or name of the service account.")]


@app.command("list")
def list_accounts(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List the service accounts of the team and their keys."""
    with open_team(server, key, team) as api:
        found = api.service_accounts()
        if print_json(found, as_json):
            return
        table = table_of("name", "role", "key", "scope", "expires", "last used")
        for account in found:
            table.add_row(account.id, account.name, account.role)
            for item in account.keys:
                times = (
                    f"{at.astimezone():%Y-%m-%d %H:%M}" if at else "never"
                    for at in (item.expires, item.last_used)
                )
                table.add_row(item.id, "", "", item.name, item.scope, *times)
        print_table(table, empty="No service accounts.")


@app.command("create")
def create(
    name: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    role: Annotated[
        Role, typer.Option(help="viewer: sees everything; editor: also uploads and trains. Never owner.")
    ] = Role.EDITOR,
    as_json: AsJson = False,
) -> None:
    """Create a service account and print its id. Then create a key for it."""
    with open_team(server, key, team) as api:
        found = api.create_service_account(name, role)
        if print_json(found, as_json):
            return
        typer.echo(found.id)


@app.command("delete")
def delete(
    account: Account,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    runs: Annotated[
        RunsOfRemoved, typer.Option(help="What happens to its unfinished runs.")
    ] = RunsOfRemoved.KEEP,
) -> None:
    """Delete a service account: its keys stop working at once; what it created stays."""
    with open_team(server, key, team) as api:
        api.delete_service_account(account_id(api, account), runs)


@app.command("create-key")
def create_key(
    account: Account,
    name: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    scope: Annotated[
        KeyScope,
        typer.Option(
            help="read: what viewers may do; submit: what editors may do; manage: all that its role allows."
        ),
    ] = KeyScope.SUBMIT,
    days: KeyDays = None,
    never_expires: NeverExpires = False,
    as_json: AsJson = False,
) -> None:
    """Create a key of a service account and print it. It is not shown again."""
    with open_team(server, key, team) as api:
        found = api.create_service_key(account_id(api, account), name, scope, key_days(days, never_expires))
        if print_json(found, as_json):
            return
        typer.echo(found.secret)


@app.command("revoke-key")
def revoke_key(
    account: Account, key_id: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER
) -> None:
    """Revoke a key of a service account."""
    with open_team(server, key, team) as api:
        api.revoke_service_key(account_id(api, account), key_id)


def account_id(api: TeamClient, account: str) -> str:
    """Id of a service account that is given by id or by name."""
    if account.startswith("user_"):
        return account
    accounts = {item.name: item.id for item in api.service_accounts()}
    if account not in accounts:
        names = ", ".join(accounts) or "none"
        print_error(f"The team has no service account {account!r}. It has: {names}.")
        raise typer.Exit(1)
    return accounts[account]
