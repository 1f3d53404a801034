"""The command that shows a run's layout before it is submitted."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.table import Column, Table

from trainwright.commands.terminal import LOCAL_SERVER, Key, Server, Sets, TeamSlug, open_team, out, read_spec
from trainwright.contracts.api.plans import PlannedMemory, RunPlan

_PARTS = ("weights", "copies", "gradients", "optimizer", "activations", "gathered", "loss", "transfers")


def plan(spec: Path, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, sets: Sets = None) -> None:
    """Show how a spec's work would be cut over the ranks, and the memory that each would need."""
    with open_team(server, key, team) as api:
        show(api.plan_run(read_spec(spec, sets)))


def show(plan: RunPlan) -> None:
    """Print degrees, stages with their memory, and the bubble."""
    shared = f", of which {plan.shard} share one copy" if plan.shard > 1 else ""
    typer.echo(
        f"{len(plan.ranks)} ranks = pipeline {plan.pipeline} × data {plan.data}{shared} × tensor {plan.tensor}"
    )
    out.print(_stages(plan))
    out.print(_memory(plan.memory))
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
