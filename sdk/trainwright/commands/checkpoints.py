"""Commands about the checkpoints of all the team's runs: which there are, which to keep, which to delete."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.commands.terminal import (
    LOCAL_SERVER,
    DryRun,
    Key,
    Server,
    TeamSlug,
    freed_in_words,
    in_mib,
    open_team,
    out,
    table_of,
)
from trainwright.contracts.api.verbs import Retention
from trainwright.contracts.checkpoint import CheckpointKind

app = typer.Typer(no_args_is_help=True, help="Keep and delete checkpoints.")


@app.command("list")
def list_checkpoints(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    kind: CheckpointKind | None = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only those that are pinned.")] = False,
) -> None:
    """List the checkpoints of all runs, newest first."""
    with open_team(server, key, team) as api:
        table = table_of("run", "kind", "step", "MiB", "")
        for one in api.all_checkpoints(kind, True if pinned else None):
            remark = "pinned" if one.pinned else "" if one.valid else "damaged"
            table.add_row(one.id, one.run, one.kind, f"{one.step:,}", in_mib(one.bytes), remark)
        out.print(table)


@app.command("pin")
def pin(run: str, checkpoint: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Keep a checkpoint until it is unpinned: nothing deletes it."""
    with open_team(server, key, team) as api:
        api.pin(run, checkpoint)


@app.command("unpin")
def unpin(run: str, checkpoint: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Let a checkpoint go like any other."""
    with open_team(server, key, team) as api:
        api.pin(run, checkpoint, pinned=False)


@app.command("delete")
def delete(
    run: str,
    checkpoint: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    dry_run: DryRun = False,
) -> None:
    """Delete one checkpoint or export."""
    with open_team(server, key, team) as api:
        typer.echo(freed_in_words(api.delete_checkpoint(run, checkpoint, dry_run=dry_run)))


@app.command("retain")
def retain(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    keep_last: Annotated[int, typer.Option(min=0, help="Newest valid states of each run.")] = 2,
    keep_every_steps: Annotated[
        int | None, typer.Option(min=1, help="Also those whose step is a multiple of it.")
    ] = None,
    exports: Annotated[
        bool, typer.Option("--delete-exports", help="Exports go too, but a run's newest.")
    ] = False,
    run: Annotated[list[str] | None, typer.Option("--run", help="Only of this run; may be repeated.")] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete them. Without it you are told what would go.")
    ] = False,
) -> None:
    """Which checkpoints nothing keeps: not the newest, pinned, downloaded, or needed by a run. Then delete them."""
    rule = Retention(
        runs=None if run is None else tuple(run),
        keep_last=keep_last,
        keep_every_steps=keep_every_steps,
        delete_exports=exports,
        dry_run=not delete,
    )
    with open_team(server, key, team) as api:
        result = api.retain(rule)
        table = table_of("run", "kind", "step", "MiB", "kept because")
        for one in result.checkpoints:
            shown = one.checkpoint
            row = (shown.run_name, shown.kind, f"{shown.step:,}", in_mib(shown.bytes), one.kept or "–")
            table.add_row(shown.id, *row)
        out.print(table)
        typer.echo(freed_in_words(result.freed))
