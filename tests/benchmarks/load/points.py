"""Row ``points``: metric points a second that agents send beside the API mix, and whether all can be read back.

Each run sends a batch of some steps of 20 series every second. An agent repeats a batch that the server could not take, and sends
the next one only then. Every value differs, so a point that is lost, changed or stored under another step is found when the curves
are read through the API. MLflow's server gets batches from one client, in turn, without other load.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.load.mix import CALLERS, PATIENCE_SECONDS, Mix, print_waits
from tests.benchmarks.load.peers import mlflow_or_none
from tests.benchmarks.load.processes import cpu_shares
from tests.benchmarks.load.row import OFFERED, Load, Measure, Row
from tests.benchmarks.load.table import Value, at_least, at_most
from tests.benchmarks.platform.open_loop import Call, Responses, ask
from tests.benchmarks.platform.server import Caller, Site

SERIES = 20
STEPS = 10
"""Of a batch."""

MAX_POINTS = 100_000
"""The most that the API returns of one series."""

Curves = Mapping[str, Mapping[int, float]]
"""Values by series and step."""


@dataclass
class Sender:
    """What the agent of one run has sent."""

    run: str
    token: str
    url: str
    batches: int = 0
    """Those that the server accepted."""

    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, _: Caller) -> None:
        """Send the next batch, after the one before it."""
        with self._lock:
            caller = Caller(self.url, self.token)
            try:
                caller.post(f"/api/v1/agent/runs/{self.run}/batches", self._batch(self.batches))
            finally:
                caller.close()
            self.batches += 1

    def sent(self) -> Curves:
        """All points that the server accepted."""
        steps = range(1, self.batches * STEPS + 1)
        return {f"s{n}": {step: value_of(step, n) for step in steps} for n in range(SERIES)}

    def _batch(self, number: int) -> dict[str, Any]:
        steps = list(range(number * STEPS + 1, (number + 1) * STEPS + 1))
        series = {f"s{n}": [value_of(step, n) for step in steps] for n in range(SERIES)}
        block = {"steps": steps, "series": series}
        return {
            "fence": 1,
            "attempt": 1,
            "offset": number,
            "next_offset": number + 1,
            "metrics": [block],
        }


def value_of(step: int, series: int) -> float:
    """The value of a point: an integer that no other point of the run has, small enough to be exact in float32."""
    return float(step * SERIES + series)


def lost_points(sent: Curves, stored: Curves) -> int:
    """Points that are missing or differ, and points that nobody sent."""
    lost = sum(
        stored.get(name, {}).get(step) != value
        for name, curve in sent.items()
        for step, value in curve.items()
    )
    return lost + sum(len(curve.keys() - sent.get(name, {}).keys()) for name, curve in stored.items())


def read_back(caller: Caller, site: Site, run: str) -> Curves:
    """All points of a run, read through the API."""
    found = caller.get(f"{site.team_path}/runs/{run}/metrics", {"points": MAX_POINTS})
    return {
        series["name"]: dict(zip(series["steps"], series["values"], strict=True))
        for series in found["series"]
    }


@contextmanager
def points(load: Load) -> Iterator[Measure]:
    """Batches at the goal rate beside the mix."""
    site, goals, size = load.site, load.goals, load.size
    made = Mix.prepare(load)
    made.ask(goals.requests_per_second / 2, 2.0)
    runs = max(int(goals.points_per_second / (SERIES * STEPS)), 1)

    def measure() -> list[Value]:
        senders = start_senders(site, runs)
        beside: list[Responses] = []
        mix = threading.Thread(
            target=lambda: beside.append(made.ask(goals.requests_per_second, size.seconds))
        )
        with cpu_shares(site.processes):
            mix.start()
            sent = send_all(senders, OFFERED * runs, size.seconds)
            mix.join()
        print_waits(sent)
        accepted = sum(sender.batches for sender in senders) * SERIES * STEPS
        person = site.person()
        lost = sum(lost_points(sender.sent(), read_back(person, site, sender.run)) for sender in senders)
        peer = None if mlflow is None else mlflow.rate()
        return [
            Value("points", accepted / sent.seconds, "per second", at_least(goals.points_per_second), peer),
            Value("lost points", lost, "", at_most(0)),
            Value("refused batches", sent.statuses.total(), "", at_most(0)),
            Value("batch p95", sent.p95(), "ms"),
            Value("p95 of the mix beside", beside[0].p95(), "ms"),
        ]

    with mlflow_or_none(site, size.toy) as mlflow:
        yield measure


def start_senders(site: Site, count: int) -> list[Sender]:
    """New runs, whose agents are spread over the API processes."""
    return [Sender(site.start_run()[1], site.node_token, site.urls[n % len(site.urls)]) for n in range(count)]


def send_all(senders: Sequence[Sender], per_second: float, seconds: float) -> Responses:
    """Send batches of all runs in turn at this rate."""
    calls: Iterator[tuple[str, Call]] = itertools.cycle([("batch", sender.send) for sender in senders])
    callers = [Caller(senders[0].url) for _ in range(CALLERS)]  # threads; each batch has its own connection
    return ask(callers, itertools.islice(calls, int(per_second * seconds)), per_second, PATIENCE_SECONDS)


POINT_ROWS: dict[str, Row] = {"points": points}
