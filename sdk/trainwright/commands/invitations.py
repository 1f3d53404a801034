"""Commands about invitations to a team, for its owners."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    open_team,
    print_json,
    print_table,
    table_of,
)
from trainwright.contracts.api.people import Role

app = typer.Typer(no_args_is_help=True, help="Invite people to the team. For its owners.")


@app.command("create")
def create(
    email: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    role: Annotated[
        Role,
        typer.Option(help="Viewers see everything, editors also upload and train, owners also invite."),
    ] = Role.VIEWER,
    as_json: AsJson = False,
) -> None:
    """Invite a person, and print the link to send to them. It works once and is not shown again."""
    with open_team(server, key, team) as api:
        invitation = api.invite(email, role)
        if print_json(invitation, as_json):
            return
        typer.echo(invitation.link)
        if invitation.warning is not None:
            typer.echo(invitation.warning, err=True)


@app.command("list")
def list_invitations(
    key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """List pending invitations."""
    with open_team(server, key, team) as api:
        found = api.invitations()
        if print_json(found, as_json):
            return
        table = table_of("email", "role", "expires")
        for invitation in found:
            table.add_row(
                invitation.id,
                invitation.email,
                invitation.role,
                f"{invitation.expires.astimezone():%Y-%m-%d %H:%M}",
            )
        print_table(table, empty="No pending invitations.")


@app.command("revoke")
def revoke(invitation: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Revoke an invitation: its link stops working."""
    with open_team(server, key, team) as api:
        api.revoke_invitation(invitation)
