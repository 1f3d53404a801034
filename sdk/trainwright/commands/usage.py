"""The command that shows the usage of a team."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Column

from trainwright.commands.limits import quota_line
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    TextTable,
    open_team,
    out,
    print_json,
)
from trainwright.contracts.api.usage import DailyMemberUsage, DailyRunUsage, MemberUsage, Usage
from trainwright.sizes import format_bytes

FORMULA_STARTS = tuple("=+-@\t")

Days = Annotated[int, typer.Option(min=1, max=366, help="Number of days up to today (UTC).")]


def usage(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    days: Days = 30,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print slot-hours by day and person as CSV, in full precision.")
    ] = False,
    by_run: Annotated[
        bool, typer.Option("--csv-by-run", help="Print slot-hours by day, person and run as CSV.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the slots and the storage in use, and slot-hours by day, by person and by run."""
    with open_team(server, key, team) as api:
        if by_run:
            print_run_csv(api.run_usage(days))
        elif as_csv:
            print_csv(api.member_usage(days))
        elif not print_json(found := api.usage(days), as_json):
            show(found)


def print_csv(found: Sequence[DailyMemberUsage]) -> None:
    """Print a header and a line per day, person and device (RFC 4180). The columns are those of the page's file."""
    lines = csv.writer(sys.stdout)
    lines.writerow(("day", "user", "name", "device", "slot_hours"))
    for item in found:
        lines.writerow((item.day, item.user or "", _as_text(item.name), item.device, item.slot_hours))


def print_run_csv(found: Sequence[DailyRunUsage]) -> None:
    """Print a header and a line per day and run (RFC 4180). The columns are those of the page's file."""
    lines = csv.writer(sys.stdout)
    lines.writerow(("day", "user", "name", "device", "run", "run_name", "slot_hours"))
    for item in found:
        names = (item.user or "", _as_text(item.name), item.device, item.run, _as_text(item.run_name))
        lines.writerow((item.day, *names, item.slot_hours))


def _as_text(name: str) -> str:
    """A name that a spreadsheet would run as a formula gets an apostrophe."""
    return f"'{name}" if name[:1] in FORMULA_STARTS else name


def person_name(item: MemberUsage) -> str:
    """The name of a person, even of one who has left."""
    if item.user is None:
        return "(unknown)"
    return item.name if item.in_team else f"{item.name} (no longer in the team)"


def show(found: Usage) -> None:
    """Print slots and storage, then days, people and runs."""
    for quota in found.quota:
        typer.echo(quota_line(quota))
    storage = found.storage
    typer.echo(f"uploaded files: {format_bytes(storage.used_bytes)} of {format_bytes(storage.limit_bytes)}")
    typer.echo(
        f"checkpoints: {format_bytes(found.team_checkpoint_bytes)}, not counted toward the upload limit"
    )
    if found.days:
        days = TextTable("day", "device", _hours())
        for day in found.days:
            days.add_row(f"{day.day}", day.device, f"{day.slot_hours:,.2f}")
        out.print(days)
        members = TextTable(Column("person", min_width=30), "device", _hours())
        for member in found.members:
            members.add_row(person_name(member), member.device, f"{member.slot_hours:,.2f}")
        out.print(members)
        runs = TextTable(Column("run", no_wrap=True, min_width=30), "name", "device", _hours())
        for item in found.runs:
            runs.add_row(item.run, item.name or "(deleted)", item.device, f"{item.slot_hours:,.2f}")
        out.print(runs)


def _hours() -> Column:
    """A new column: each stores the cells of its table."""
    return Column("slot-hours", justify="right")
