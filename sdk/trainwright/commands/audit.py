"""Commands about the audit logs of a team and of the installation."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    TextTable,
    open_client,
    open_team,
    print_json,
    print_table,
)
from trainwright.contracts.api.audit import AuditEntry
from trainwright.contracts.api.envelopes import Page

app = typer.Typer(no_args_is_help=True, help="Show who changed what.")

Words = Annotated[str, typer.Option("--search", help="Words that an entry must contain.")]
Actor = Annotated[str, typer.Option("--actor", help="Name or id of who made the change.")]
Operation = Annotated[
    str, typer.Option("--action", help="Name of the operation, such as submit_run; --json prints it.")
]
Since = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"],
        help="The earliest time; without a time zone, in that of this machine.",
    ),
]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="Number of entries.")]


@app.command("list")
def list_audit(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    words: Words = "",
    actor: Actor = "",
    action: Operation = "",
    since: Since = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest changes in a team. For its owners. --json also prints the requests."""
    with open_team(server, key, team) as api:
        _print(api.audit(words, limit, actor=actor, action=action, since=_aware(since)), as_json)


@app.command("site")
def list_site_audit(
    key: Key,
    server: Server = LOCAL_SERVER,
    words: Words = "",
    actor: Actor = "",
    action: Operation = "",
    since: Since = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest changes outside of teams: accounts, keys, sign-ins, nodes, new and deleted teams. For site admins. --json also prints the requests."""
    with open_client(server, key) as api:
        _print(api.audit(words, limit, actor=actor, action=action, since=_aware(since)), as_json)


@app.command("export")
def export(file: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Write all entries of a team, oldest first, to FILE as JSON lines. For its owners."""
    with open_team(server, key, team) as api:
        typer.echo(f"{api.export_audit(file)}")


@app.command("export-site")
def export_site(file: Path, key: Key, server: Server = LOCAL_SERVER) -> None:
    """Write all entries outside of teams, oldest first, to FILE as JSON lines. For site admins."""
    with open_client(server, key) as api:
        typer.echo(f"{api.export_audit(file)}")


def _aware(time: datetime | None) -> datetime | None:
    return None if time is None else time.astimezone()


def _print(page: Page[AuditEntry], as_json: bool) -> None:
    if print_json(page, as_json):
        return
    table = TextTable("time", "who", "what", "via", "from")
    for item in page.items:
        time = f"{item.time.astimezone():%Y-%m-%d %H:%M:%S}"
        what = " ".join(part.text for part in item.sentence) or f"{item.action} {item.path}"
        key = f"key {item.via}" if item.key_name is None else f"key {item.key_name} ({item.via})"
        via = item.via if item.via == "browser" else key
        table.add_row(time, item.name, what, via, item.address)
    print_table(table, empty="No entries.")
