"""Row ``first-step-platform``: the time from submitting a run on a live platform to its first step, by phase.

    control plane  submission, placement, and the agent's claim
    spawn          until the run's supervisor has started
    fetch          the first renewal, and linking the data, which the node has, into the run's folder
    import         the launcher, torch, and the rank
    build          until the training is built
    first step

A phase ends with something that the program itself records: an event of the API, a file of the supervisor, a line of
the trainer. So phases add up to the total. All clocks are this machine's; times of files have a resolution of a few
milliseconds. Timers have their defaults. The peer is a bare script that imports, builds and makes the same step
(``first_step``).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.benchmarks.report.entries import Entry, at_most
from tests.benchmarks.report.results import RefusedError
from tests.benchmarks.trainer.first_step import bare_script_seconds
from tests.benchmarks.trainer.shapes import TOY
from tests.live import Live, eventually, live_platform, write_letters
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.job_spec import (
    EVENTS_NAME,
    JOB_NAME,
    LOGS_FOLDER,
    OUTPUT_FOLDER,
    log_name,
)
from trainwright.contracts.run_state import RunState
from trainwright_agent.workspace import AttemptFolder

Entries = dict[str, Entry]

PHASES = ("control plane", "spawn", "fetch", "import", "build", "first step")
CONTROL_SECONDS = 0.3
LARGEST = 1.3
"""Relative to the bare script."""


def first_step_platform(given: argparse.Namespace) -> Entries:
    """Seconds of a cold start, alternating with the script; and the control plane's share of it, p95."""
    rounds = 1 if given.toy else 6
    phases: list[dict[str, float]] = []
    bare: list[float] = []
    with live_platform(given.folder / "first-step-platform", timers={}) as live:
        file = write_letters(given.folder / "letters.jsonl", 2_000)
        spec = _spec(live.team.upload("letters", [file]))
        _start(live, spec)  # prepares the data and sends it to the node
        for _ in range(rounds):
            phases.append(_start(live, spec))
            bare += [bare_script_seconds(), bare_script_seconds()]
            phases.append(_start(live, spec))
    wholes = [sum(phase.values()) for phase in phases]
    print(
        "  median of "
        + ", ".join(f"{name} {median(phase[name] for phase in phases):.3f} s" for name in PHASES)
    )
    control = quantiles([phase[PHASES[0]] for phase in phases], n=20, method="inclusive")[-1]
    unit = "s p95 from submitting to the claim, peer: the mark"
    return {
        "first-step-platform": at_most(median(wholes), median(bare), "s from submitting", LARGEST, 1.0),
        "first-step-platform-control": at_most(control, CONTROL_SECONDS, unit, 1.0, 1.0),
    }


def _spec(dataset: Dataset) -> dict[str, Any]:
    """A long run: it is cancelled after its first step."""
    steps = 1_000_000
    return {
        "name": "first step",
        "data": {
            "dataset": dataset.id,
            "tokenizer": {"vocabulary": TOY.vocabulary},
            "validation_fraction": 0.1,
        },
        "model": TOY.model.model_dump(),
        "batch": TOY.batch.model_dump(),
        "schedule": {"steps": steps, "warmup_steps": 5},
        "validation": {"every_steps": steps},
        "checkpoint": {"every_steps": steps},
        "precision": {"kind": "fp32"},
        "resources": {"device": "cpu", "slots_per_node": 1},
    }


def _start(live: Live, spec: dict[str, Any]) -> dict[str, float]:
    """Seconds of each phase of a run that has the node to itself."""
    free = live.client.nodes()[0].slots["cpu"]
    eventually(lambda: live.client.nodes()[0].slots_free["cpu"] == free, "the node is free", 60)
    started = time.time()
    run = live.team.submit(spec).id
    try:
        events = _events_with_a_step(live, run)
        marks = [started, _claimed(live, run), *_marks(events)]
    finally:
        live.team.cancel(run)
    return {name: end - start for name, (start, end) in zip(PHASES, pairwise(marks), strict=True)}


def _events_with_a_step(live: Live, run: str) -> Path:
    """Events of the run's attempt, in the agent's workspace, once its first step is made.

    A refused claim leaves a folder of the run for a while too.
    """
    runs = live.platform.folder.path / "agent" / "runs"
    found: list[Path] = []

    def look() -> bool:
        for folder in runs.glob("*"):
            with suppress(FileNotFoundError):
                events = folder / OUTPUT_FOLDER / EVENTS_NAME
                if AttemptFolder(folder).record().run_id == run and _time_of(events, "step") is not None:
                    found.append(events)
        return bool(found)

    eventually(look, "the first step is made", 120)
    return found[0]


def _claimed(live: Live, run: str) -> float:
    moved = (event for event in live.team.events(run) if event.state is RunState.STARTING)
    return next(moved).time.timestamp()


def _marks(events: Path) -> list[float]:
    """When the supervisor, the job file, the rank's log, the training and its first step appeared."""
    folder = events.parent.parent
    built, stepped = _time_of(events, "attempt_started"), _time_of(events, "step")
    assert built is not None and stepped is not None, "the first step was seen"
    return [
        (folder / "supervisor.json").stat().st_mtime,
        (folder / JOB_NAME).stat().st_mtime,
        _creation_time(folder / OUTPUT_FOLDER / LOGS_FOLDER / log_name(0)),
        built,
        stepped,
    ]


def _time_of(events: Path, kind: str) -> float | None:
    """The time of the first complete line of this type."""
    text = events.read_text() if events.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        event = json.loads(line)
        if event["type"] == kind:
            return datetime.fromisoformat(event["time"]).timestamp()
    return None


def _creation_time(path: Path) -> float:
    """When the file was created, which Python's ``stat`` lacks."""
    shown = subprocess.run(["stat", "-c", "%.9W", str(path)], check=True, stdout=subprocess.PIPE, text=True)
    born = float(shown.stdout)
    if not born:
        raise RefusedError(f"the file system of {path.parent} does not record when a file was created")
    return born


START_ROWS: dict[str, Callable[[argparse.Namespace], Entries]] = {"first-step-platform": first_step_platform}
