"""Commands that plan runs before they are submitted, and change the layout of runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Column

from trainwright.commands.object_names import RunName, find_run
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    Sets,
    TeamSlug,
    TextTable,
    apply_set,
    exit_with_problems,
    format_duration,
    format_flops,
    format_percent,
    open_team,
    out,
    plural,
    print_error,
    print_json,
    read_spec,
    read_valid_spec,
    spec_problems,
)
from trainwright.contracts.api.actions import RunLayout
from trainwright.contracts.api.plans import GpuModel, PlannedMemory, PlannedStage, RunPlan, WhatIf
from trainwright.contracts.api.usage import RunEstimate
from trainwright.contracts.base import problems
from trainwright.contracts.run_spec import RunSpec
from trainwright.sizes import format_bytes

_PARTS = (
    "weights",
    "copies",
    "gradients",
    "optimizer",
    "activations",
    "gathered",
    "loss",
    "transfers",
    "snapshot",
)


def plan(
    spec: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Show how a run would be distributed over ranks, and how much memory each rank would need."""
    with open_team(server, key, team) as api:
        found = api.plan_run(read_valid_spec(api, spec, sets))
        if print_json(found, as_json):
            return
        show(found)


def estimate(
    spec: Path,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    begin_step: Annotated[
        int, typer.Option(min=0, help="Step of the checkpoint that a fork would continue from.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Estimate the compute, memory and storage of a run, and its time if a similar run was measured. Exits with 1 after
    printing the estimate if no node could run it."""
    with open_team(server, key, team) as api:
        valid = read_valid_spec(api, spec, sets)
        found = api.estimate(valid, begin_step)
        if not print_json(found, as_json):
            show_estimate(found)
        exit_with_problems(api.validate(valid).problems)


def what_if(
    spec: Path,
    key: Key,
    team: TeamSlug,
    gpu: Annotated[str, typer.Option(help="Part of a GPU's name, such as h100 or 'rtx 4090'.")],
    count: Annotated[int, typer.Option(min=1, max=1_024, help="GPUs of each node.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, max=4_096)] = 1,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Plan a run for any known GPU, joined or not: whether it fits, and about how long it takes."""
    with open_team(server, key, team) as api:
        whole = read_spec(spec, sets)
        resources = whole.setdefault("resources", {})
        if isinstance(resources, dict):
            resources |= {"device": "cuda", "nodes": nodes, "slots_per_node": count}
        exit_with_problems(spec_problems(whole))
        found = api.what_if(whole, _gpu_named(api.gpus(), gpu))
        if print_json(found, as_json):
            return
        show_what_if(found)


def _gpu_named(gpus: Sequence[GpuModel], words: str) -> str:
    """The name of the one GPU that matches ``words``. Whole words take precedence over parts: L4 does not mean L40S."""
    containing = [gpu.name for gpu in gpus if words.lower() in gpu.name.lower()]
    entire = re.compile(rf"\b{re.escape(words)}\b", re.IGNORECASE)
    found = [name for name in containing if entire.search(name)] or containing
    if len(found) == 1:
        return found[0]
    which = "several GPUs have" if found else "no GPU has"
    names = ", ".join(found or [gpu.name for gpu in gpus])
    print_error(
        f"--gpu {words}: {which} this in the name. Write a longer part of one of these names: {names}."
    )
    raise typer.Exit(2)


def show_what_if(found: WhatIf) -> None:
    """Print whether the run fits, and the estimated time."""
    where = f"{found.nodes * found.slots_per_node} × {found.gpu.name}"
    typer.echo(where if found.nodes == 1 else f"{where} on {found.nodes} nodes")
    needed = max(rank.total for rank in found.plan.memory)
    typer.echo(f"memory  {format_bytes(needed)} of {format_bytes(found.gpu.memory_bytes)} on the fullest GPU")
    typer.echo("fits    " + ("yes" if found.plan.too_large is None else f"no. {found.plan.too_large}"))
    if found.seconds is None:
        typer.echo("time    unknown: the vendor states no peak for this precision")
        return
    typer.echo(
        f"time    {_about(found.seconds)}, estimated at {format_percent(found.assumed_mfu)} of the peak"
    )


def _about(seconds: float) -> str:
    duration = format_duration(seconds)
    return duration if duration.startswith("less than") else f"about {duration}"


def layout(
    run: RunName,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Change the layout of a run for its next attempt, for example with --set parallelism.pipeline=2. A current attempt
    is not affected."""
    with open_team(server, key, team) as api:
        run = find_run(api, run)
        changed = changed_layout(api.run(run).spec, sets or [])
        found = api.change_layout(run, changed)
        if print_json(found, as_json):
            return
        typer.echo(show_layout(found.spec))


def changed_layout(spec: RunSpec, sets: list[str]) -> RunLayout:
    """The layout of ``spec`` with the changes of ``--set``."""
    whole = spec.model_dump(mode="json")
    for change in sets:
        path = change.partition("=")[0]
        if not path.startswith("parallelism.") and path != "batch.micro_sequences":
            print_error(f"--set {change}: only parallelism.… and batch.micro_sequences can be changed here.")
            raise typer.Exit(2)
        apply_set(whole, change)
    asked = {"parallelism": whole["parallelism"], "micro_sequences": whole["batch"]["micro_sequences"]}
    try:
        return RunLayout.model_validate(asked)
    except ValidationError as error:
        exit_with_problems(problems(error, RunLayout))
        raise


def show_layout(spec: RunSpec) -> str:
    """The layout of the next attempt in one line."""
    degrees = spec.degrees
    return (
        f"{plural(degrees.ranks, 'rank')} = pipeline {degrees.pipeline} × data {degrees.data} × tensor {degrees.tensor}, "
        f"{plural(spec.batch.micro_sequences, 'sequence')} per micro batch, starting with the next attempt"
    )


def show_estimate(found: RunEstimate) -> None:
    """Print an estimate, one figure per line."""
    storage = found.storage
    typer.echo(f"parameters   {found.parameters:,}")
    typer.echo(f"compute      {format_flops(found.flops)}")
    typer.echo(f"memory       {format_bytes(found.memory_bytes)} on the rank that needs most")
    if found.host_bytes:
        typer.echo(f"host memory  {format_bytes(found.host_bytes)} on each node, for checkpoints and offload")
    typer.echo(
        f"checkpoints  {format_bytes(found.checkpoint_bytes)} each, {format_bytes(found.stored_bytes)} in total"
    )
    typer.echo(
        f"stored now   {format_bytes(found.team_checkpoint_bytes)} of checkpoints; "
        f"{format_bytes(storage.used_bytes)} of uploaded files, with a limit of {format_bytes(storage.limit_bytes)}"
    )
    if found.measured is None or found.seconds is None or found.slot_hours is None:
        at_peak = found.seconds_at_peak
        least = (
            ""
            if at_peak is None or at_peak < 1
            else f"; over {format_duration(at_peak)}, its time at the nodes' peak"
        )
        typer.echo(f"time         not measured yet{least}")
        return
    measured = found.measured
    typer.echo(
        f"time         {format_duration(found.seconds)}, {found.slot_hours:,.3g} slot-hours: {measured.name} reached "
        f"{measured.tokens_per_second:,.0f} tokens/s on {measured.node}"
    )


def show(plan: RunPlan) -> None:
    """Print degrees, stages with their memory, and the bubble."""
    shared = f", sharded over {plan.shard}" if plan.shard > 1 else ""
    typer.echo(
        f"{plural(len(plan.ranks), 'rank')} = pipeline {plan.pipeline} × data {plan.data}{shared} × tensor {plan.tensor}"
    )
    out.print(_stages(plan))
    out.print(_memory(plan.memory))
    if plan.too_large is not None:
        typer.echo(f"This does not fit. {plan.too_large}")
    if plan.slot_bytes is not None:
        typer.echo(f"The smallest slot, on {plan.slot_node}, has {format_bytes(plan.slot_bytes)}.")
    if plan.host_bytes:
        has = (
            ""
            if plan.host_node_bytes is None
            else f"; {plan.host_node} has {format_bytes(plan.host_node_bytes)}"
        )
        typer.echo(
            f"Checkpoints and offload use {format_bytes(plan.host_bytes)} of host memory on each node{has}."
        )
    for warning in plan.warnings:
        typer.secho(warning, fg=typer.colors.YELLOW)
    for sentence in (plan.export_loaded_by, plan.what_decays, plan.learning_rates):
        if sentence:
            typer.echo(sentence)
    if plan.stages_are_measured:
        typer.echo(
            "Stages are chosen when the run starts, by the measured speed of its ranks. Those above assume equal speeds."
        )
    if plan.pipeline > 1:
        batches = plural(plan.micro_batches, "micro batch", "micro batches")
        idle = format_percent(plan.bubble_fraction, digits=1)
        typer.echo(f"{plan.schedule}, {batches} per step: ranks are idle {idle} of the time.")


def _stages(plan: RunPlan) -> TextTable:
    table = TextTable("stage", "pipeline rank", "layers", "also")
    for item in plan.stages:
        beside = [name for name, there in (("embedding", item.embedding), ("loss", item.loss)) if there]
        table.add_row(str(item.stage), str(item.rank), _layers(item), ", ".join(beside))
    return table


def _layers(stage: PlannedStage) -> str:
    """`4 (0–3)`: their number, and which they are."""
    first, last = stage.first_layer, stage.first_layer + stage.layers - 1
    which = {0: "", 1: f" ({first})"}.get(stage.layers, f" ({first}–{last})")
    return f"{stage.layers}{which}"


def _memory(memory: list[PlannedMemory]) -> TextTable:
    """Sizes by component, without components that use none."""
    parts = [name for name in (*_PARTS, "host") if any(getattr(item, name) for item in memory)]
    columns = [Column(name, justify="right") for name in ("memory", *parts)]
    table = TextTable("pipeline rank", *columns)
    for item in memory:
        sizes = [item.total, *(getattr(item, name) for name in parts)]
        table.add_row(str(item.rank), *map(format_bytes, sizes))
    return table
