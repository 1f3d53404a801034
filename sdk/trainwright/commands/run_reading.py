"""Commands that show runs: one in full, and how several runs differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from trainwright.client import TeamClient
from trainwright.commands.object_names import RunName, RunNames, find_run
from trainwright.commands.run_states import shown_state
from trainwright.commands.terminal import (
    LOCAL_SERVER,
    AsJson,
    Key,
    Server,
    TeamSlug,
    TextTable,
    format_decimal,
    format_percent,
    format_rate,
    format_slots,
    open_team,
    out,
    print_json,
    printable,
)
from trainwright.contracts.api.checkpoints import Checkpoint
from trainwright.contracts.api.metrics import RunSeries
from trainwright.contracts.api.runs import Run
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.series import SERIES
from trainwright.transport.errors import ApiError

COMPARED: dict[str, Callable[[float], str]] = {
    "loss": format_decimal,
    "validation_loss": format_decimal,
    "tokens_per_second": format_rate,
    "mfu": partial(format_percent, digits=1),
}
"""The last values that a comparison shows, with their formats."""

TITLES = {series.name: series.title for series in SERIES}

CURVE_POINTS = 10
NOT_FOUND = 404


def show(
    run: RunName, key: Key, team: TeamSlug, server: Server = LOCAL_SERVER, as_json: AsJson = False
) -> None:
    """Show a run: its state, data, model, hardware, latest values and checkpoints."""
    with open_team(server, key, team) as api:
        run = find_run(api, run)
        found = api.run(run)
        if print_json(found, as_json):
            return
        out.print(found.name, style="bold", end="  ")
        out.print(found.id)
        out.print(f"{shown_state(found.state)}: {printable(found.sentence)}", soft_wrap=True)
        out.print(_facts(found, _dataset_name(api, found), api.checkpoints(run)))


def _dataset_name(api: TeamClient, run: Run) -> str:
    """The name of a run's dataset, or its id if it is deleted."""
    try:
        return api.dataset(run.spec.data.dataset).name
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return f"{run.spec.data.dataset} (deleted)"


def _facts(run: Run, dataset: str, checkpoints: Sequence[Checkpoint]) -> TextTable:
    """One row for each fact; facts that the run does not have are left out."""
    spec, values = run.spec, run.summary.values
    fp8 = spec.precision.fp8
    version = "" if spec.data.version is None else f" version {spec.data.version}"
    layout = ", ".join(f"{axis} {degree}" for axis, degree in asdict(spec.degrees).items() if degree > 1)
    across = f" on {spec.resources.nodes} nodes" if spec.resources.nodes > 1 else ""
    steps = {
        kind: sorted(item.step for item in checkpoints if item.kind is kind and item.valid)
        for kind in CheckpointKind
    }
    facts = {
        "step": f"{run.summary.step:,} of {spec.schedule.steps:,}",
        "values": ", ".join(
            f"{TITLES[name]} {form(values[name])}" for name, form in COMPARED.items() if name in values
        ),
        "data": f"{dataset}{version}",
        "model": f"{spec.model.layers:,} layers × {spec.model.width:,}",
        "precision": spec.precision.kind if fp8 is None else f"{spec.precision.kind} {fp8.level}",
        "layout": layout,
        "hardware": f"{format_slots(spec.resources.ranks, spec.resources.device)}{across}",
        "nodes": ", ".join(run.attempt_nodes),
        "checkpoints": _counted(steps[CheckpointKind.STATE]),
        "exports": _counted(steps[CheckpointKind.EXPORT]),
        "tags": ", ".join(run.tags),
        "notes": run.notes,
        "forked from": ""
        if run.forked_from is None
        else f"{run.forked_from.name} from step {run.forked_from.step:,}",
        "created": f"{run.created.astimezone():%Y-%m-%d %H:%M:%S} by {run.created_by or 'a former member'}",
        "ended": "" if run.ended is None else f"{run.ended.astimezone():%Y-%m-%d %H:%M:%S}",
    }
    table = TextTable(show_header=False, padding=(0, 2, 0, 0))
    for name, text in facts.items():
        if text:
            table.add_row(name, text)
    return table


def _counted(steps: Sequence[int]) -> str:
    return f"{len(steps):,}, the newest of step {steps[-1]:,}" if steps else "none"


def compare(
    runs: RunNames,
    key: Key,
    team: TeamSlug,
    server: Server = LOCAL_SERVER,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Also print points of this curve; can be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: their last values, the fields in which their specs differ, and points of curves."""
    with open_team(server, key, team) as api:
        runs = [find_run(api, run) for run in runs]
        found = [api.run(run) for run in runs]
        if not metric:
            if not print_json(found, as_json):
                out.print(_comparison(found))
            return
        series = api.compare_metrics(runs, metric, CURVE_POINTS)
        if print_json(series, as_json):
            return
        out.print(_comparison(found))
        for name in metric:
            out.print(_curves(found, series, name))


def _comparison(runs: Sequence[Run]) -> TextTable:
    """A row for each value and each field that differs, and a column for each run."""
    table = TextTable("", *(run.name for run in runs))
    table.add_row("id", *(run.id for run in runs))
    table.add_row("state", *(shown_state(run.state) for run in runs))
    table.add_row("step", *(f"{run.summary.step:,}" for run in runs))
    for name, form in COMPARED.items():
        values = [run.summary.values.get(name) for run in runs]
        table.add_row(TITLES[name], *("–" if value is None else form(value) for value in values))
    fields = [dict(_fields(run.spec.model_dump(mode="json"))) for run in runs]
    for name in dict.fromkeys(name for own in fields for name in own):
        texts = [own.get(name) for own in fields]
        if name != "name" and any(text != texts[0] for text in texts):
            table.add_row(name, *("–" if text is None else str(text) for text in texts))
    return table


def _fields(spec: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a spec by dotted name."""
    for name, value in spec.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _curves(runs: Sequence[Run], series: Sequence[RunSeries], name: str) -> TextTable:
    """Points of one curve of each run, by step."""
    curves = {
        own.run: dict(zip(curve.steps, curve.values, strict=True))
        for own in series
        for curve in own.series
        if curve.name == name
    }
    table = TextTable(f"{TITLES.get(name, name)} at step", *(run.name for run in runs))
    for step in sorted({step for curve in curves.values() for step in curve}):
        points = (curves.get(run.id, {}).get(step) for run in runs)
        table.add_row(f"{step:,}", *(format_decimal(point) for point in points))
    return table
