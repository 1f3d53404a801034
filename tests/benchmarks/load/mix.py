"""The API mix, 80 % reads, as people and programs send it, and the rows that use it.

    mix    the mix at the goal rate, for minutes: no 5xx, and a bounded 95th percentile
    burst  five times as many requests as the goal for some seconds: only 2xx, 429 and 503; then the goal rate again
    soak   the mix for minutes: file descriptors and memory of the processes do not grow

Requests are due at fixed times (`open_loop`). Nothing is asked again: a 503 counts as an error of the mix.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.benchmarks.load.dataset import spec_with_data
from tests.benchmarks.load.processes import cpu_shares, growth, memory_mb, open_files, slope
from tests.benchmarks.load.row import OFFERED, Load, Measure, Row
from tests.benchmarks.load.size import MEMORY_MB_PER_MINUTE, P95_MS
from tests.benchmarks.load.table import Value, at_least, at_most
from tests.benchmarks.platform.api_load import allow_submissions
from tests.benchmarks.platform.open_loop import NO_ANSWER, Call, Responses, ask, p95
from tests.benchmarks.platform.reads import fill_log, fill_runs, fill_series
from tests.benchmarks.platform.server import Caller, Site

CALLERS = 32
"""Connections."""

PATIENCE_SECONDS = 20.0
"""How long requests wait that are still due when a rate ends. A server that cannot keep up would answer them for minutes."""

BURST = 5
CALM_SECONDS = 5.0
"""Pause after a burst, in which waiting requests are answered."""

CHART_STEPS = 10_000
LOG_LINES = 10_000
SAMPLES = 120
"""Looks at the processes during a soak."""

MAX_MORE_FILES = 3
"""Allowed growth of open files: one more connection to SQLite opens the database, its WAL and the WAL's index."""

REFUSALS_OF_A_BURST = frozenset({429, 503})

Calls = Iterator[tuple[str, Call]]


@dataclass(frozen=True)
class Mix:
    """The mix on a platform that has runs, one of them with a chart and a log."""

    site: Site
    watched: str
    """Id of the run with a chart and a log."""

    spec: dict[str, object]
    """What is submitted."""

    submitted: queue.SimpleQueue[str] = field(default_factory=lambda: queue.SimpleQueue[str]())

    @classmethod
    def prepare(cls, load: Load) -> Mix:
        """Fill the database."""
        site = load.site
        fill_runs(site, load.size.stored_runs)
        allow_submissions(site)
        run_id, watched = site.start_run()
        fill_series(site, run_id, ["loss", "grad_norm"], CHART_STEPS)
        fill_log(site, run_id, LOG_LINES)
        return cls(site, watched, spec_with_data(site))

    def calls(self) -> Calls:
        """Endless: of each ten, eight read and two write, a submission or the cancellation of an earlier one."""
        team = self.site.team_path
        run = f"{team}/runs/{self.watched}"
        reads: list[tuple[str, Call]] = [
            ("run list", lambda caller: caller.get(f"{team}/runs", {"limit": 50})),
            ("run", lambda caller: caller.get(run)),
            ("chart", lambda caller: caller.get(f"{run}/metrics", {"points": 1_000})),
            ("events", lambda caller: caller.get(f"{run}/events", {"limit": 100})),
            ("log lines", lambda caller: caller.get(f"{run}/logs/1/rank-0.log/lines", {"limit": 200})),
            ("nodes", lambda caller: caller.get("/api/v1/nodes")),
            ("datasets", lambda caller: caller.get(f"{team}/datasets")),
            ("run", lambda caller: caller.get(run)),
        ]
        writes: list[tuple[str, Call]] = [("submit", self._submit), ("cancel", self._cancel)]
        return itertools.cycle([*reads[:4], writes[0], *reads[4:], writes[1]])

    def ask(self, per_second: float, seconds: float, connections: int = CALLERS) -> Responses:
        """Ask the mix at this rate. Connections are spread over the API processes."""
        callers = self.site.people(connections, busy_seconds=0)
        calls = itertools.islice(self.calls(), max(int(per_second * seconds), 1))
        return ask(callers, calls, per_second, PATIENCE_SECONDS)

    def _submit(self, caller: Caller) -> None:
        self.submitted.put(caller.post(f"{self.site.team_path}/runs", self.spec)["id"])

    def _cancel(self, caller: Caller) -> None:
        try:
            run = self.submitted.get_nowait()
        except queue.Empty:  # its submission is late, or was refused
            return self._submit(caller)
        caller.ask("POST", f"{self.site.team_path}/runs/{run}/cancel")
        return None


@contextmanager
def mix(load: Load) -> Iterator[Measure]:
    """The mix at the goal rate."""
    made, rate = Mix.prepare(load), load.goals.requests_per_second
    made.ask(rate / 2, 2.0)  # the first of each kind warms up

    def measure() -> list[Value]:
        with cpu_shares(load.site.processes):
            responses = made.ask(OFFERED * rate, load.size.mix_minutes * 60)
        print_waits(responses)
        return [
            Value("requests", responses.accepted_per_second, "per second", at_least(rate)),
            Value("p95", responses.p95(), "ms", at_most(P95_MS)),
            Value("responses 5xx", server_errors(responses), "", at_most(0)),
            Value("other errors", responses.statuses.total() - server_errors(responses), "", at_most(0)),
        ]

    yield measure


@contextmanager
def burst(load: Load) -> Iterator[Measure]:
    """Five times the goal rate, and the goal rate afterwards."""
    made, rate, size = Mix.prepare(load), load.goals.requests_per_second, load.size
    made.ask(rate / 2, 2.0)

    def measure() -> list[Value]:
        with cpu_shares(load.site.processes):
            flooded = made.ask(BURST * rate, size.burst_seconds, size.burst_connections)
        print_waits(flooded)
        time.sleep(CALM_SECONDS)
        after = made.ask(rate, size.burst_seconds)
        print_waits(after)
        refused = sum(flooded.statuses[status] for status in REFUSALS_OF_A_BURST)
        return [
            Value("refused by 429 or 503", 100 * refused / flooded.count, "%"),
            Value("other errors", unexpected(flooded.statuses), "", at_most(0)),
            Value("p95 afterwards", after.p95(), "ms", at_most(P95_MS)),
            Value("errors afterwards", after.statuses.total(), "", at_most(0)),
        ]

    yield measure


@contextmanager
def soak(load: Load) -> Iterator[Measure]:
    """The mix at the goal rate while the processes are watched. The control loop is a thread of an API process."""
    made, rate = Mix.prepare(load), load.goals.requests_per_second
    made.ask(rate / 2, 2.0)

    def measure() -> list[Value]:
        seconds = load.size.soak_minutes * 60
        with cpu_shares(load.site.processes), watching(load.site, seconds / SAMPLES) as samples:
            responses = made.ask(rate, seconds)
        print_waits(responses)
        values = [Value("errors", responses.statuses.total(), "", at_most(0))]
        for name in load.site.processes:
            values += growth_of(name, samples)
        return values

    yield measure


@dataclass(frozen=True)
class Sample:
    """Memory and open files of the processes at one moment."""

    minutes: float
    memory_mb: dict[str, float]
    files: dict[str, int]


@contextmanager
def watching(site: Site, every_seconds: float) -> Iterator[list[Sample]]:
    """Samples of the platform's processes, which are complete when the block ends."""
    samples: list[Sample] = []
    done, started = threading.Event(), time.monotonic()

    def watch() -> None:
        while True:
            minutes = (time.monotonic() - started) / 60
            memory = {name: memory_mb(pid) for name, pid in site.processes.items()}
            files = {name: open_files(pid) for name, pid in site.processes.items()}
            samples.append(Sample(minutes, memory, files))
            if done.wait(every_seconds):
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def growth_of(name: str, samples: Sequence[Sample]) -> list[Value]:
    """Growth of a process's memory over the last two thirds of the samples, and of its open files over the last third."""
    late = samples[len(samples) // 3 :]
    minutes, memory = [sample.minutes for sample in late], [sample.memory_mb[name] for sample in late]
    files = [float(sample.files[name]) for sample in samples]
    return [
        Value(f"{name} memory", slope(minutes, memory), "MB/min", at_most(MEMORY_MB_PER_MINUTE)),
        Value(f"{name} more open files", growth(files), "", at_most(MAX_MORE_FILES)),
    ]


def server_errors(responses: Responses) -> int:
    """Responses with a status of 500 or more."""
    return sum(count for status, count in responses.statuses.items() if status >= 500)


def unexpected(statuses: Counter[int]) -> int:
    """Errors that even a flood of requests must not cause, also requests without a response."""
    return sum(count for status, count in statuses.items() if status not in REFUSALS_OF_A_BURST)


def print_waits(responses: Responses) -> None:
    """Print the waits of each kind of request, the refusals, and whether requests were sent on time."""
    for kind, waits in sorted(responses.waits.items()):
        if len(waits) > 1:
            print(f"    {kind}: {len(waits):,}, p95 {p95(waits):.0f} ms")
    for status, count in sorted(responses.statuses.items()):
        print(f"    {'no answer' if status == NO_ANSWER else status}: {count:,}")
    if responses.errors:
        print(f"    the first error: {responses.errors[0]!r}"[:400])
    if len(responses.late) > 1:
        print(f"    handed out late by the generator: p95 {p95(responses.late):.1f} ms", flush=True)


MIX_ROWS: dict[str, Row] = {"mix": mix, "burst": burst, "soak": soak}
