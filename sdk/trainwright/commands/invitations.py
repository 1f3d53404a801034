"""Commands about invitations into a team, for its owners."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.commands.terminal import LOCAL_SERVER, Key, Server, TeamSlug, open_team, out, table_of
from trainwright.contracts.api.people import Role

app = typer.Typer(no_args_is_help=True, help="Invite people into the team. For its owners.")


@app.command("create")
def create(
    email: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    role: Annotated[
        Role,
        typer.Option(help="viewer sees everything, editor brings data in and trains, owner invites too."),
    ] = Role.VIEWER,
) -> None:
    """Invite somebody, and print the link to send to them. It works once and is never shown again."""
    with open_team(server, key, team) as api:
        typer.echo(api.invite(email, role).link)


@app.command("list")
def list_invitations(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """List the invitations that nobody has used and that still work."""
    with open_team(server, key, team) as api:
        table = table_of("e-mail", "role", "works until")
        for one in api.invitations():
            table.add_row(one.id, one.email, one.role, f"{one.expires.astimezone():%Y-%m-%d %H:%M}")
        out.print(table)


@app.command("revoke")
def revoke(invitation: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Let the link of an invitation work no more."""
    with open_team(server, key, team) as api:
        api.revoke_invitation(invitation)
