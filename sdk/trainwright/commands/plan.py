"""The commands that show what a run would come to before it is submitted, and lay one out anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Column, Table

from trainwright.commands.terminal import (
    LOCAL_SERVER,
    Key,
    Server,
    Sets,
    TeamSlug,
    complain,
    in_bytes,
    in_mib,
    open_team,
    out,
    read_spec,
    refuse,
    set_value,
)
from trainwright.contracts.api.plans import PlannedMemory, RunPlan
from trainwright.contracts.api.usage import RunEstimate
from trainwright.contracts.api.verbs import RunLayout
from trainwright.contracts.base import problems
from trainwright.contracts.run_spec import RunSpec

_PARTS = ("weights", "copies", "gradients", "optimizer", "activations", "gathered", "loss", "transfers")


def plan(spec: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None) -> None:
    """Show how a spec's work would be cut over the ranks, and the memory that each would need."""
    with open_team(server, key, team) as api:
        show(api.plan_run(read_spec(spec, sets)))


def estimate(
    spec: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    begin_step: Annotated[
        int, typer.Option(min=0, help="Step of the checkpoint that a fork would go on from.")
    ] = 0,
) -> None:
    """Show what a spec's run would come to: arithmetic, memory, bytes, and time where it was measured."""
    with open_team(server, key, team) as api:
        show_estimate(api.estimate(read_spec(spec, sets), begin_step))


def layout(run: str, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None) -> None:
    """Cut a run's next attempt over its ranks in another way, as in --set parallelism.pipeline=2. What --set does not
    name stays, and so does an attempt that lives."""
    with open_team(server, key, team) as api:
        changed = changed_layout(api.run(run).spec, sets or [])
        typer.echo(show_layout(api.change_layout(run, changed).spec))


def changed_layout(spec: RunSpec, sets: list[str]) -> RunLayout:
    """The layout of ``spec`` with the changes of ``--set``."""
    whole = spec.model_dump(mode="json")
    for change in sets:
        path = change.partition("=")[0]
        if not path.startswith("parallelism.") and path != "batch.micro_sequences":
            complain(
                f"--set {change}: a layout is parallelism.… and batch.micro_sequences; the rest of a run stays."
            )
            raise typer.Exit(2)
        set_value(whole, change)
    asked = {"parallelism": whole["parallelism"], "micro_sequences": whole["batch"]["micro_sequences"]}
    try:
        return RunLayout.model_validate(asked)
    except ValidationError as error:
        refuse(problems(error, RunLayout))
        raise


def show_layout(spec: RunSpec) -> str:
    """A line that says how the next attempt is cut."""
    degrees = spec.degrees
    return (
        f"{degrees.ranks} ranks = pipeline {degrees.pipeline} × data {degrees.data} × tensor {degrees.tensor}, "
        f"{spec.batch.micro_sequences} sequences in a micro batch; from the next attempt on"
    )


def show_estimate(found: RunEstimate) -> None:
    """Print the figures of an estimate, one a line."""
    storage = found.storage
    typer.echo(f"parameters   {found.parameters:,}")
    typer.echo(f"arithmetic   {found.flops:.3g} FLOPs, {found.petaflop_days:.3g} petaFLOP/s-days")
    typer.echo(f"memory       {in_mib(found.memory_bytes)} MiB on the fullest rank")
    if found.host_bytes:
        typer.echo(f"host memory  {in_mib(found.host_bytes)} MiB on each node, by offload")
    typer.echo(
        f"checkpoints  {in_mib(found.checkpoint_bytes)} MiB each, {in_mib(found.stored_bytes)} MiB kept in all"
    )
    typer.echo(
        f"stored now   {in_bytes(found.team_checkpoint_bytes)} of checkpoints, which no limit refuses; "
        f"{in_bytes(storage.used_bytes)} of {in_bytes(storage.limit_bytes)} of files"
    )
    if found.measured is None or found.seconds is None or found.slot_hours is None:
        typer.echo("time         not measured yet")
        return
    measured = found.measured
    typer.echo(
        f"time         {found.seconds / 3600:,.3g} h, {found.slot_hours:,.3g} slot-hours: {measured.name} made "
        f"{measured.tokens_per_second:,.0f} tokens/s on {measured.node}"
    )


def show(plan: RunPlan) -> None:
    """Print degrees, stages with their memory, and the bubble."""
    shared = f", of which {plan.shard} share one copy" if plan.shard > 1 else ""
    typer.echo(
        f"{len(plan.ranks)} ranks = pipeline {plan.pipeline} × data {plan.data}{shared} × tensor {plan.tensor}"
    )
    out.print(_stages(plan))
    out.print(_memory(plan.memory))
    if plan.slot_bytes is not None:
        typer.echo(f"The smallest slot, on {plan.slot_node}, has {plan.slot_bytes / 2**20:,.0f} MiB.")
    if plan.host_bytes:
        has = (
            ""
            if plan.host_node_bytes is None
            else f"; {plan.host_node} has {in_mib(plan.host_node_bytes)} MiB"
        )
        typer.echo(f"Offload puts {in_mib(plan.host_bytes)} MiB into the memory of each node{has}.")
    for warning in plan.warnings:
        typer.secho(warning, fg=typer.colors.YELLOW)
    if plan.stages_are_measured:
        typer.echo(
            "Stages are chosen when the run starts, by the measured speed of its ranks; these are for equal ones."
        )
    if plan.pipeline > 1:
        typer.echo(
            f"{plan.schedule}, {plan.micro_batches} micro batches a step: ranks wait {plan.bubble_fraction:.1%} of the time."
        )


def _stages(plan: RunPlan) -> Table:
    table = Table("stage", "pipeline rank", "layers", "", box=None)
    for one in plan.stages:
        last = one.first_layer + one.layers - 1
        beside = [name for name, there in (("embedding", one.embedding), ("loss", one.loss)) if there]
        table.add_row(
            str(one.stage), str(one.rank), f"{one.layers} ({one.first_layer}–{last})", ", ".join(beside)
        )
    return table


def _memory(memory: list[PlannedMemory]) -> Table:
    """MiB by part; parts that nobody has are left out."""
    parts = [name for name in (*_PARTS, "host") if any(getattr(one, name) for one in memory)]
    columns = [Column(name, justify="right") for name in ("MiB", *parts)]
    table = Table("pipeline rank", *columns, box=None)
    for one in memory:
        sizes = [one.total, *(getattr(one, name) for name in parts)]
        table.add_row(str(one.rank), *(f"{size / 2**20:,.0f}" for size in sizes))
    return table
