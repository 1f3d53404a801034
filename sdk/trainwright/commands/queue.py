"""Commands about the queue of a team."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.commands.object_names import RunNames, find_run
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    format_slots,
    open_team,
    print_json,
    print_table,
    table_of,
)
from trainwright.contracts.api.queue import Priority, QueuedRun

app = typer.Typer(no_args_is_help=True, help="Show and change the order in which waiting runs start.")


@app.command("list")
def list_queue(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the team's waiting runs in the order in which they start."""
    with open_team(server, key, team) as api:
        found = api.queue()
        if print_json(found, as_json):
            return
        table = table_of("place", "name", "by", "slots", "priority", "expected start", "why it waits")
        for run in found:
            if mine and not run.mine:
                continue
            slots = format_slots(run.slots, run.device)
            by = run.created_by or "–"
            place = str(run.position)
            table.add_row(run.id, place, run.name, by, slots, run.priority, _start(run), run.sentence)
        print_table(table, empty="The queue is empty.")


@app.command("reorder")
def reorder(runs: RunNames, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Let RUNS of one priority start in this order. They exchange places among themselves."""
    with open_team(server, key, team) as api:
        api.reorder([find_run(api, run) for run in runs])
        typer.echo("done")


@app.command("priority")
def set_priority(
    priority: Priority, runs: RunNames, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER
) -> None:
    """Give RUNS another priority. Editors can assign low and normal, owners also high."""
    with open_team(server, key, team) as api:
        for run in [find_run(api, run) for run in runs]:
            typer.echo(f"{api.edit(run, priority=priority).name}: {priority}")


def _start(run: QueuedRun) -> str:
    """`2026-11-26 14:00`, or `about` that time if it is rough."""
    if run.expected_start is None:
        return "not known"
    time = f"{run.expected_start.astimezone():%Y-%m-%d %H:%M}"
    return f"about {time}" if run.start_is_rough else time
