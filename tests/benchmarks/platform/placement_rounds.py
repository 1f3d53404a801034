"""Rows ``placement``, ``backfill`` and ``long-queue``: the time of a placement round with 1,000 nodes and 2,000 or 10,000 queued runs on
1 to 64 of them, in SQLite.

Runs leave their nodes one after the other, and after each step a round places others, so a round places as many runs as ended since
the previous one. That is what a busy platform does, because each end of a run starts a round. A round plans all runs at the heads
of the queues in one snapshot, and commits each placement.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median, quantiles

from tests.benchmarks.report.entries import Entry, at_most
from tests.simulated_nodes import SimulatedNodes, SimulatedRun, random_run

Entries = dict[str, Entry]

TEAMS = 20
ROUNDS = 100


def placement(given: argparse.Namespace) -> Entries:
    """2,000 queued runs."""
    return _time_rounds(given, "placement", runs=2_000, mark_ms=200.0)


def backfill(given: argparse.Namespace) -> Entries:
    """2,000 queued runs with maximum run times: rounds know when nodes become free, and which runs would end before that."""
    return _time_rounds(
        given,
        "backfill",
        runs=2_000,
        mark_ms=200.0,
        change=lambda run: replace(run, max_hours=float(run.steps)),
    )


def long_queue(given: argparse.Namespace) -> Entries:
    """10,000 queued runs."""
    return _time_rounds(given, "long-queue", runs=10_000, mark_ms=300.0)


def _time_rounds(
    given: argparse.Namespace,
    row: str,
    runs: int,
    mark_ms: float,
    change: Callable[[SimulatedRun], SimulatedRun] = lambda run: run,
) -> Entries:
    """Median and 95th percentile of the rounds, after the first ones have filled the nodes."""
    nodes, runs, rounds = (50, runs // 20, 5) if given.toy else (1_000, runs, ROUNDS)
    folder = given.folder / row
    folder.mkdir()
    simulated = SimulatedNodes.create(folder, nodes, TEAMS)
    dice = random.Random(0)
    for team_id in simulated.teams:
        simulated.submit(team_id, [change(random_run(dice, longest=rounds)) for _ in range(runs // TEAMS)])
    while simulated.place():
        simulated.pass_step()
    waits, placed = [], 0
    for _ in range(rounds):
        simulated.pass_step()
        begin = time.perf_counter()
        placed += len(simulated.place())
        waits.append((time.perf_counter() - begin) * 1_000)
    p95 = quantiles(waits, n=20, method="inclusive")[-1]
    print(f"  a round: median {median(waits):.0f} ms, p95 {p95:.0f} ms, {placed / rounds:.1f} runs placed")
    unit = "ms of a round, peer: the mark"
    return {
        f"{row}-median": at_most(median(waits), mark_ms, unit, 1.0, 1.0),
        f"{row}-p95": at_most(p95, mark_ms, f"p95 {unit}", 1.0, 1.0),
    }


PLACEMENT_ROWS: dict[str, Callable[[argparse.Namespace], Entries]] = {
    "placement": placement,
    "backfill": backfill,
    "long-queue": long_queue,
}
