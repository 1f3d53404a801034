"""Commands about the people of a team."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.client import TeamClient
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    NamedTeam,
    Server,
    TeamSlug,
    open_team,
    out,
    print_error,
    print_json,
    table_of,
)
from trainwright.contracts.api.people import Role, RunsOfRemoved

app = typer.Typer(no_args_is_help=True, help="List the people of the team; owners change their roles.")

Person = Annotated[str, typer.Argument(help="Id or email address of the member.")]
ROLES_HELP = "Viewers see everything, editors also upload and train, owners also manage people."


@app.command("list")
def list_members(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List the people of the team."""
    with open_team(server, key, team) as api:
        found = api.members()
        if print_json(found, as_json):
            return
        table = table_of("name", "email", "role")
        for member in found:
            table.add_row(member.id, member.name, member.email, member.role)
        out.print(table)


@app.command("set-role")
def set_role(
    member: Person,
    role: Annotated[Role, typer.Argument(help=ROLES_HELP)],
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Give a member another role. The last owner keeps it. For owners."""
    with open_team(server, key, team) as api:
        changed = api.change_role(member_id(api, member), role)
        if print_json(changed, as_json):
            return
        typer.echo(f"{changed.name} is now {changed.role} of {api.slug}.")


@app.command("remove")
def remove(
    member: Person,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    runs: Annotated[
        RunsOfRemoved, typer.Option(help="What happens to their unfinished runs.")
    ] = RunsOfRemoved.KEEP,
) -> None:
    """Remove a person from the team. Their keys stop working for it; what they created stays. For owners."""
    with open_team(server, key, team) as api:
        api.remove_member(member_id(api, member), runs)
        typer.echo(f"{member} is no longer in {api.slug}.")


@app.command("leave")
def leave(key: Key, team: NamedTeam, server: Server = LOCAL_SERVER) -> None:
    """Leave the team. Your keys stop working for it; your runs continue and stay. The last owner cannot leave."""
    with open_team(server, key, team) as api:
        api.leave()
        typer.echo(f"You are no longer in {api.slug}.")


def member_id(api: TeamClient, member: str) -> str:
    """Id of a member who is given by id or by email address."""
    if "@" not in member:
        return member
    members = {item.email: item.id for item in api.members() if item.email}  # service accounts have none
    if member.lower() not in members:
        print_error(
            f"Nobody in the team has the address {member}. Its members are {', '.join(sorted(members))}."
        )
        raise typer.Exit(1)
    return members[member.lower()]
