"""Commands about teams."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from trainwright.commands.terminal import LOCAL_SERVER, Key, Server, TeamSlug, open_client, open_team, out

app = typer.Typer(no_args_is_help=True, help="List your teams; owners rename and delete theirs.")


@app.command("list")
def list_teams(key: Key, server: Server = LOCAL_SERVER) -> None:
    """List the teams you are in, with your role."""
    with open_client(server, key) as client:
        table = Table("team", "name", "role", box=None)
        for membership in client.me().teams:
            table.add_row(membership.slug, membership.name, membership.role)
        out.print(table)


@app.command("rename")
def rename(name: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Change the team's name. Its slug, which addresses and scripts contain, does not change. For owners."""
    with open_team(server, key, team) as api:
        changed = api.rename(name)
        typer.echo(f"{changed.slug} is now named {changed.name}.")


@app.command("delete")
def delete(
    key: Key,
    team: TeamSlug,
    confirm: Annotated[str, typer.Option(help="The team's slug, repeated.")],
    server: Server = LOCAL_SERVER,
) -> None:
    """Delete the team with its runs, checkpoints, datasets and usage. For owners, once all its runs have ended."""
    with open_team(server, key, team) as api:
        api.delete_team(confirm)
        typer.echo(f"{team} is deleted.")
