"""Row ``queue``: submissions, claims and the end of runs while thousands wait.

    submits   people submit at the goal rate behind a full queue, while no node is online
    claims    simulated nodes run each run for some seconds: from the accepted end of a run until its node has claimed the next
    drain     they end each run at once: claims per second

The queue has as many runs at the start of each measurement. A simulated node has one slot. It learns of its placements as an agent
does, by a hint through the broker or by its heartbeat, claims, renews once and reports the end. The end is that of a job that the
trainer refuses, the shortest there is: the run fails at once and is not retried.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from uuid import uuid4

from redis import Redis
from sqlalchemy import func, insert, select, update

from tests.benchmarks.load.agents import HEARTBEAT, SimulatedNode, add_nodes
from tests.benchmarks.load.dataset import spec_with_data
from tests.benchmarks.load.mix import CALLERS, PATIENCE_SECONDS, print_waits
from tests.benchmarks.load.processes import cpu_shares
from tests.benchmarks.load.row import OFFERED, Load, Measure, Row
from tests.benchmarks.load.table import Value, at_least, at_most
from tests.benchmarks.platform.api_load import allow_submissions
from tests.benchmarks.platform.open_loop import ask, p95
from tests.benchmarks.platform.server import Caller, Site, StatusError
from trainwright.contracts.agent_protocol import HINTS_KEY_PREFIX, Phase, hints_queue
from trainwright.contracts.end_codes import EndCode
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Run, RunSummary

NODES = 16
RUN_SECONDS = 4.0
"""How long a node keeps each run while claims are timed: about four claims a second on all nodes."""
TOY_RUN_SECONDS = 0.2
HINT_WAIT_SECONDS = 1.0


@dataclass
class Work:
    """What the simulated nodes did."""

    claims: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds from the accepted end of a run until its node had claimed the next."""

    refusals: list[StatusError] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)


@contextmanager
def queued(load: Load) -> Iterator[Measure]:
    """Submissions, claims and drain, one after the other."""
    site, goals, size = load.site, load.goals, load.size
    allow_submissions(site)
    nodes = add_nodes(site, 2 if size.toy else NODES, cpu_slots=1)
    spec = spec_with_data(site)

    def submit(caller: Caller) -> None:
        caller.post(f"{site.team_path}/runs", spec)

    def measure() -> list[Value]:
        fill_queue(site, size.queued_runs)
        rate = OFFERED * goals.submits_per_second
        submits = itertools.repeat(("submit", submit), max(int(rate * size.seconds), 2))
        with cpu_shares(site.processes):
            submitted = ask(site.people(CALLERS, busy_seconds=0), submits, rate, PATIENCE_SECONDS)
        print_waits(submitted)
        fill_queue(site, size.queued_runs)
        with cpu_shares(site.processes):
            claimed = work(site, nodes, size.seconds, TOY_RUN_SECONDS if size.toy else RUN_SECONDS)
        fill_queue(site, size.queued_runs)
        started = time.perf_counter()
        with cpu_shares(site.processes):
            drained = work(site, nodes, size.seconds, run_seconds=0.0)
        drain = drained.claims / (time.perf_counter() - started)
        errors = [*claimed.errors, *drained.errors]
        print(
            f"    {claimed.claims:,} and {drained.claims:,} claims; refused: {len(claimed.refusals) + len(drained.refusals)}"
        )
        if errors:
            print(f"    the first error of a node: {errors[0]!r}"[:400])
        return [
            Value("submits", submitted.accepted_per_second, "per second", at_least(goals.submits_per_second)),
            Value("submit p95", submitted.p95(), "ms"),
            Value("refused submits", submitted.statuses.total(), "", at_most(0)),
            Value("claim p95", p95_or_infinite(claimed.waits), "s", at_most(goals.claim_seconds)),
            Value(
                "drain",
                drain,
                "per second",
                None if goals.drain_per_second is None else at_least(goals.drain_per_second),
            ),
            Value("errors of nodes", len(errors), "", at_most(0)),
        ]

    yield measure


def work(site: Site, nodes: Sequence[SimulatedNode], seconds: float, run_seconds: float) -> Work:
    """Let the nodes claim and end runs for ``seconds``. Afterwards they are offline, and nothing is placed on them."""
    found, until = Work(), time.monotonic() + seconds
    threads = [
        threading.Thread(target=_work_on_node, args=(site, node, until, run_seconds, found)) for node in nodes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with site.database.write() as session:
        session.execute(update(Node).values(last_heartbeat=None))
    return found


def _work_on_node(site: Site, node: SimulatedNode, until: float, run_seconds: float, found: Work) -> None:
    caller, hints = Caller(node.url, node.token), Redis.from_url(_client_url(site))
    queue, period = HINTS_KEY_PREFIX + hints_queue(node.name), site.settings.timers.heartbeat_seconds
    ended: float | None = None
    next_heartbeat = 0.0
    while time.monotonic() < until:
        try:
            placed: list[str] = []
            if time.monotonic() >= next_heartbeat:
                next_heartbeat = time.monotonic() + period
                response = caller.post(HEARTBEAT, {"busy_slots": {}})
                placed = [run["run_id"] for run in response["placements"] if not run["claimed"]]
            if not placed:
                placed = _hinted(hints, queue)
            for run in placed:
                ended = _run_once(caller, run, ended, run_seconds, found)
        except StatusError as error:
            # A hint may be old: its run has been withdrawn, or was claimed already. Anything else is an error.
            (found.refusals if error.status == 409 else found.errors).append(error)
        except (OSError, HTTPException, RuntimeError) as error:
            found.errors.append(error)
    hints.close()
    caller.close()


def _run_once(caller: Caller, run: str, ended: float | None, run_seconds: float, found: Work) -> float:
    """Claim a run, renew its lease once and end it; returns when its end was accepted."""
    path = f"/api/v1/agent/runs/{run}"
    claim = caller.post(f"{path}/claim", {"claim_id": uuid4().hex})
    if ended is not None:
        found.waits.append(time.perf_counter() - ended)
    found.claims += 1
    mine: dict[str, Any] = {"claim_id": claim["claim_id"], "fence": claim["fence"]}
    caller.post(f"{path}/renew", mine | {"phase": Phase.STARTING})
    time.sleep(run_seconds)
    exit = {"code": EndCode.BAD_JOB, "message": "a simulated end"}
    caller.post(f"{path}/end", mine | {"exit": exit, "offsets": {}})
    return time.perf_counter()


def _hinted(hints: Redis, queue: str) -> list[str]:
    """The run that the next hint names, if one comes soon. A hint is a Celery message with the run's id as its argument."""
    found: Any = hints.brpop([queue], timeout=HINT_WAIT_SECONDS)
    if found is None:
        return []
    arguments = json.loads(base64.b64decode(json.loads(found[1])["body"]))[0]
    return [str(argument) for argument in arguments]


def _client_url(site: Site) -> str:
    """Address of the hints broker as redis-py takes it."""
    url = site.settings.hints_url
    assert url is not None, "the deployment has a broker"
    return url.replace("redis+socket://", "unix://").replace("virtual_host=", "db=")


def p95_or_infinite(values: Sequence[float]) -> float:
    """95th percentile; infinite if there are fewer than two values."""
    return p95(values) if len(values) > 1 else float("inf")


def count_queued(site: Site) -> int:
    """Runs that wait in the queue."""
    with site.database.read() as session:
        return session.scalar(select(func.count()).select_from(Run).where(Run.state == "queued")) or 0


def fill_queue(site: Site, count: int) -> None:
    """Add runs until ``count`` wait in the queue, each for one CPU slot of one node."""
    missing = count - count_queued(site)
    columns = Run.__table__.columns.keys()
    waiting = {"state": "queued", "fence": 0, "attempt": 0, "started": None}
    for begin in range(0, missing, 1_000):
        runs = [site.run_row(n, **waiting) for n in range(begin, min(begin + 1_000, missing))]
        rows = [{column: getattr(run, column) for column in columns} for run in runs]
        summaries: list[dict[str, Any]] = [
            {
                "run_id": run.id,
                "step": 0,
                "attempt": 0,
                "values": {},
                "spark": [],
                "spark_stride": 1,
                "peak_name": None,
                "bf16_peak_name": None,
            }
            for run in runs
        ]
        with site.database.write() as session:
            session.execute(insert(Run), rows)
            session.execute(insert(RunSummary), summaries)


QUEUE_ROWS: dict[str, Row] = {"queue": queued}
