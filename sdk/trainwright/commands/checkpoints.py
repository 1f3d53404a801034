"""Commands about the checkpoints of a team: list, pin, delete and prune them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import typer

from trainwright.commands.object_names import RunName, find_run
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    DryRun,
    Key,
    Server,
    TeamSlug,
    checkpoint_remark,
    describe_freed,
    format_validation,
    open_team,
    print_json,
    print_table,
    table_of,
)
from trainwright.contracts.api.actions import Retention, RetentionReason
from trainwright.contracts.api.checkpoints import Checkpoint, CheckpointOrder
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.sizes import format_bytes

app = typer.Typer(no_args_is_help=True, help="Keep and delete checkpoints.")

KEPT_REASONS = {
    RetentionReason.NEWEST: "among the newest",
    RetentionReason.MULTIPLE: "at a multiple of the steps",
    RetentionReason.PINNED: "pinned",
    RetentionReason.DOWNLOADING: "being downloaded",
    RetentionReason.FORKED: "needed by a fork",
    RetentionReason.LIVE: "needed by an unfinished run",
    RetentionReason.EXPORT: "exported weights",
}


@app.command("list")
def list_checkpoints(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    kind: CheckpointKind | None = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only pinned checkpoints.")] = False,
    order: Annotated[
        CheckpointOrder, typer.Option(help="The checkpoint saved last first, or run by run.")
    ] = CheckpointOrder.NEWEST,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of all runs, newest first or run by run."""
    with open_team(server, key, team) as api:
        found = api.all_checkpoints(kind, True if pinned else None, order)
        if print_json(found, as_json):
            return
        table, names = table_of("run", "kind", "step", "validation loss", "size", "remark"), _run_names(found)
        for checkpoint in found:
            table.add_row(
                checkpoint.id,
                names[checkpoint.run],
                checkpoint.kind,
                f"{checkpoint.step:,}",
                format_validation(checkpoint),
                format_bytes(checkpoint.bytes),
                checkpoint_remark(checkpoint),
            )
        print_table(table, empty="No checkpoints.")


def _run_names(checkpoints: Iterable[Checkpoint]) -> dict[str, str]:
    """Names of the checkpoints' runs, by id. Runs with the same name keep their ids."""
    names = {checkpoint.run: checkpoint.run_name for checkpoint in checkpoints}
    count = Counter(names.values())
    return {run: name if name and count[name] == 1 else run for run, name in names.items()}


@app.command("pin")
def pin(run: RunName, checkpoint: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Pin a checkpoint, so that it is not deleted."""
    with open_team(server, key, team) as api:
        api.pin(find_run(api, run), checkpoint)


@app.command("unpin")
def unpin(run: RunName, checkpoint: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER) -> None:
    """Unpin a checkpoint."""
    with open_team(server, key, team) as api:
        api.pin(find_run(api, run), checkpoint, pinned=False)


@app.command("delete")
def delete(
    run: RunName,
    checkpoint: str,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete one checkpoint or export."""
    with open_team(server, key, team) as api:
        found = api.delete_checkpoint(find_run(api, run), checkpoint, dry_run=dry_run)
        if print_json(found, as_json):
            return
        typer.echo(describe_freed(found))


KeepLast = Annotated[int, typer.Option(min=0, help="Newest valid checkpoints of each run to keep.")]
KeepEverySteps = Annotated[
    int | None, typer.Option(min=1, help="Also keep checkpoints whose step is a multiple of this.")
]
DeleteExports = Annotated[
    bool, typer.Option("--delete-exports", help="Also delete exports, except the newest of each run.")
]
OnlyRuns = Annotated[
    list[str] | None,
    typer.Option("--run", help="Only checkpoints of this run, by id or name; can be repeated."),
]


@app.command("prune")
def prune(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    keep_last: KeepLast = 2,
    keep_every_steps: KeepEverySteps = None,
    exports: DeleteExports = False,
    run: OnlyRuns = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete old checkpoints: all that are not among the newest, pinned, being downloaded, or needed by a run. The command says how
    many there are, and asks before it deletes them. --dry-run only lists them."""
    with open_team(server, key, team) as api:
        rule = Retention(
            runs=None if run is None else tuple(find_run(api, each) for each in run),
            keep_last=keep_last,
            keep_every_steps=keep_every_steps,
            delete_exports=exports,
            dry_run=dry_run,
        )
        if not dry_run and not yes:
            would = api.retain(rule.model_copy(update={"dry_run": True}))
            if would.freed.checkpoints:
                typer.confirm(f"{describe_freed(would.freed)} Delete them?", abort=True, err=True)
        result = api.retain(rule)
        if print_json(result, as_json):
            return
        table = table_of("run", "kind", "step", "validation loss", "size", "kept because")
        names = _run_names([item.checkpoint for item in result.checkpoints])
        for item in result.checkpoints:
            shown = item.checkpoint
            table.add_row(
                shown.id,
                names[shown.run],
                shown.kind,
                f"{shown.step:,}",
                format_validation(shown),
                format_bytes(shown.bytes),
                "not kept" if item.kept is None else KEPT_REASONS[item.kept],
            )
        print_table(table, empty="No checkpoints.")
        typer.echo(describe_freed(result.freed))


@app.command("retain", hidden=True)
def retain(
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    keep_last: KeepLast = 2,
    keep_every_steps: KeepEverySteps = None,
    exports: DeleteExports = False,
    run: OnlyRuns = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete them. Without this option they are only listed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The earlier name of `prune`, which deletes with --delete only."""
    prune(
        key,
        team,
        server,
        keep_last,
        keep_every_steps,
        exports,
        run,
        dry_run=not delete,
        yes=True,
        as_json=as_json,
    )
