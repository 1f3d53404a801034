"""Commands about the audit log of a team."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from trainwright.commands.terminal import LOCAL_SERVER, Key, Server, TeamSlug, open_team, out, printable

app = typer.Typer(no_args_is_help=True, help="Show who changed what in the team. For owners.")

SHOWN_CHARACTERS = 80
"""Characters of an entry's details in a table."""


@app.command("list")
def list_audit(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    words: Annotated[str, typer.Option("--search", help="Words that an entry must contain.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Number of entries.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the newest entries. Long details are truncated; --json prints them in full."""
    with open_team(server, key, team) as api:
        page = api.audit(words, limit)
        if as_json:
            typer.echo(page.model_dump_json(indent=2))
            return
        table = Table("time", "who", "via", "from", "action", "path", "details", box=None)
        for item in page.items:
            time, who = f"{item.time.astimezone():%Y-%m-%d %H:%M:%S}", printable(item.name)
            details = printable(item.details)
            if len(details) > SHOWN_CHARACTERS:
                details = details[:SHOWN_CHARACTERS] + "…"
            table.add_row(time, who, item.via, item.address, item.action, printable(item.path), details)
        out.print(table)


@app.command("export")
def export(file: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Write all entries, oldest first, to FILE as JSON lines."""
    with open_team(server, key, team) as api:
        typer.echo(f"{api.export_audit(file)}")
