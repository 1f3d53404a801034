"""Commands about teams."""

from __future__ import annotations

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
    out,
    print_json,
)

app = typer.Typer(no_args_is_help=True, help="List your teams; owners rename and delete theirs.")


@app.command("list")
def list_teams(key: Key, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List the teams you are in, with your role."""
    with open_client(server, key) as client:
        found = client.me().teams
        if print_json(found, as_json):
            return
        table = TextTable("team", "name", "role")
        for membership in found:
            table.add_row(membership.slug, membership.name, membership.role)
        out.print(table)


@app.command("create")
def create(
    slug: Annotated[str, typer.Argument(help="The team's name in addresses and scripts. It never changes.")],
    name: Annotated[str, typer.Argument(help="The team's name, as people read it.")],
    key: Key,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Create a team, whose owner you become. For site admins."""
    with open_client(server, key) as client:
        created = client.create_team(slug, name)
        if print_json(created, as_json):
            return
        typer.echo(created.slug)


@app.command("rename")
def rename(
    name: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Change the team's name. Its slug, which addresses and scripts contain, does not change. For owners."""
    with open_team(server, key, team) as api:
        changed = api.rename(name)
        if print_json(changed, as_json):
            return
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
        typer.echo(f"{api.slug} is deleted.")
