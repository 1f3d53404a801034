"""The command that shows the usage of a team."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Column, Table

from trainwright.commands.terminal import LOCAL_SERVER, Key, Server, TeamSlug, format_bytes, open_team, out
from trainwright.contracts.api.usage import Usage

Days = Annotated[int, typer.Option(min=1, max=366, help="Number of days up to today (UTC).")]


def usage(key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, days: Days = 30) -> None:
    """Show quota, storage, and slot-hours by day and by run."""
    with open_team(server, key, team) as api:
        show(api.usage(days))


def show(found: Usage) -> None:
    """Print quota and storage, then days and runs."""
    for quota in found.quota:
        typer.echo(f"{quota.device}: {quota.used} of {quota.limit} slots")
    storage = found.storage
    typer.echo(f"files: {format_bytes(storage.used_bytes)} of {format_bytes(storage.limit_bytes)}")
    typer.echo(f"checkpoints: {format_bytes(found.team_checkpoint_bytes)}, not counted toward the limit")
    hours = Column("slot-hours", justify="right")
    if found.days:
        days = Table("day", "device", hours, box=None)
        for day in found.days:
            days.add_row(f"{day.day}", day.device, f"{day.slot_hours:,.2f}")
        out.print(days)
        runs = Table(Column("run", no_wrap=True, min_width=30), "name", "device", hours, box=None)
        for item in found.runs:
            runs.add_row(item.run, item.name or "(deleted)", item.device, f"{item.slot_hours:,.2f}")
        out.print(runs)
