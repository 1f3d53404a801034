"""Commands about the limits of a team and of its members."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainwright.commands.members import Person, member_id
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    TextTable,
    open_team,
    out,
    plural,
    print_json,
)
from trainwright.contracts.api.limits import LimitUse, MemberLimits, TeamLimits
from trainwright.contracts.api.people import Quota
from trainwright.sizes import format_bytes

app = typer.Typer(
    no_args_is_help=True,
    help="Show and change the limits of slots, monthly hours, storage, runs and priorities.",
)

NOUNS = {"cuda": "GPU-hours", "cpu": "CPU slot-hours"}
Changes = Annotated[
    list[str],
    typer.Argument(
        metavar="FIELD=VALUE…", help="Limits, such as gpu_hours_per_month=500. An empty value removes one."
    ),
]


@app.command("show")
def show(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """Show the team's limits, how much of them is used, and a forecast of the month's hours."""
    with open_team(server, key, team) as api:
        found = api.limits()
        if print_json(found, as_json):
            return
        print_limits(found)


@app.command("set")
def set_limits(changes: Changes, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Change some limits of the team. For site admins."""
    with open_team(server, key, team) as api:
        limits = api.limits().limits.model_dump() | parse_changes(changes, TeamLimits)
        print_json(api.set_limits(TeamLimits.model_validate(limits)))


@app.command("slots")
def set_slots(
    device: str,
    limit: int,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    guaranteed: Annotated[
        int | None, typer.Option(help="The team's share: runs that borrow give these slots back.", min=0)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change how many slots of DEVICE, cuda or cpu, the team may use at once. For site admins."""
    with open_team(server, key, team) as api:
        quota = api.set_slots(device, limit, guaranteed)
        if print_json(quota, as_json):
            return
        typer.echo(quota_line(quota))
        if quota.warning is not None:
            typer.echo(quota.warning, err=True)


@app.command("files")
def set_files(
    gib: Annotated[float, typer.Argument(min=0, help="GiB of uploaded files.")],
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Change the upload limit: how many GiB of files the team may store. For site admins."""
    with open_team(server, key, team) as api:
        use = api.set_storage(round(gib * 2**30))
        if print_json(use, as_json):
            return
        typer.echo(f"uploaded files: {format_bytes(use.used_bytes)} of {format_bytes(use.limit_bytes)}")


@app.command("members")
def list_members(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False) -> None:
    """List the limits of the members and how much of them their runs use."""
    with open_team(server, key, team) as api:
        found = api.member_limits()
        if print_json(found, as_json):
            return
        table = TextTable("name", "limits", "used this month", "stored", "on nodes", "waiting")
        for item in found:
            limits = item.limits.model_dump(mode="json", exclude_none=True)
            named = ", ".join(f"{name}={value}" for name, value in limits.items()) or "–"
            used = ", ".join(f"{hours.used:,.1f} {NOUNS[hours.device]}" for hours in item.hours if hours.used)
            stored = "–" if item.storage is None else format_bytes(item.storage.used_bytes)
            table.add_row(item.name, named, used or "–", stored, f"{item.running:,}", f"{item.queued:,}")
        out.print(table)


@app.command("set-member")
def set_member(
    member: Person, changes: Changes, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER
) -> None:
    """Change some limits of a member. For owners."""
    with open_team(server, key, team) as api:
        user = member_id(api, member)
        current = next((item.limits for item in api.member_limits() if item.user == user), MemberLimits())
        limits = current.model_dump() | parse_changes(changes, MemberLimits)
        changed = api.set_member_limits(user, MemberLimits.model_validate(limits))
        print_json(changed)


def parse_changes(changes: list[str], contract: type[TeamLimits | MemberLimits]) -> dict[str, Any]:
    """``FIELD=VALUE`` as a dict; an empty value means the field's default.

    Raises:
        ValueError: a change has no ``=``.
    """
    parsed: dict[str, Any] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise ValueError(
                f"{change}: write it as FIELD=VALUE. The fields are {', '.join(contract.model_fields)}."
            )
        default = contract.model_fields[name].default if name in contract.model_fields else None
        parsed[name] = value or default
    return parsed


def print_limits(found: LimitUse) -> None:
    """Print a line for each limit, then the notices."""
    for hours in found.hours:
        of = "no limit" if hours.limit is None else f"of {hours.limit:,g}"
        typer.echo(
            f"{NOUNS[hours.device]} in {found.month:%B %Y} (UTC): {hours.used:,.1f}, {of}; forecast {hours.forecast:,.1f}"
        )
    storage = found.storage
    of = "no limit" if storage.limit_bytes is None else f"of {format_bytes(storage.limit_bytes)}"
    typer.echo(
        f"total storage: {format_bytes(storage.used_bytes)}, {of} (uploaded files {format_bytes(storage.uploads_bytes)}, prepared data "
        f"{format_bytes(storage.prepared_bytes)}, checkpoints and exports {format_bytes(storage.checkpoint_bytes)}); reserved for "
        f"the next checkpoints of runs: {format_bytes(storage.reserved_bytes)}"
    )
    limits = found.limits
    typer.echo(f"runs at once: {found.running:,}, {_of(limits.concurrent_runs)}")
    typer.echo(f"queued runs: {found.queued:,}, {_of(limits.queued_runs)}")
    typer.echo(f"highest priority: editors {limits.editor_priority}, owners {limits.owner_priority}")
    for notice in found.notices:
        typer.echo(f"{notice.time.astimezone():%Y-%m-%d %H:%M}  {notice.sentence}")


def quota_line(quota: Quota) -> str:
    """`cpu: 5 of 8 slots, 4 guaranteed, 1 borrowed`."""
    share, borrowed = quota.guaranteed_slots, max(quota.used - quota.guaranteed_slots, 0)
    guaranteed = f", {share:,} guaranteed, {borrowed:,} borrowed" if share else ""
    return f"{quota.device}: {quota.used:,} of {plural(quota.limit, 'slot')}{guaranteed}"


def _of(limit: int | None) -> str:
    return "no limit" if limit is None else f"of {limit:,}"
