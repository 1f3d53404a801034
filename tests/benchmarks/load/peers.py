"""MLflow's server for the rows that it has, on a database of the same kind as ours, with as many workers as ours has API processes."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from sqlalchemy import create_engine, text

from tests.benchmarks.platform.mlflow_peer import Mlflow, running_mlflow
from tests.benchmarks.platform.open_loop import p95
from tests.benchmarks.platform.server import Caller, Site
from tests.benchmarks.report.results import RefusedError

EXPERIMENT = "0"
"""The one that a new server has."""

SEARCHES = (
    {"order_by": ["attributes.start_time DESC"]},
    {"filter": "attributes.status = 'FAILED'", "order_by": ["metrics.loss ASC"]},
    {"filter": "attributes.run_name LIKE '%Pilot depth%'", "order_by": ["metrics.loss ASC"]},
    {"filter": "attributes.run_name LIKE '%no such name%'", "order_by": ["metrics.mfu DESC"]},
)
"""The questions of ours (`reads.FILTERS`) in its language."""


@contextmanager
def mlflow_or_none(site: Site, toy: bool, runs: int = 0) -> Iterator[Mlflow | None]:
    """A running server with so many stored runs. Without MLflow it prints the reason, and yields None."""
    with tempfile.TemporaryDirectory(prefix="trainwright-mlflow-") as name, ExitStack() as stack:
        try:
            server = running_mlflow(Path(name), toy, _new_database(site), len(site.urls))
            mlflow = stack.enter_context(server)
        except RefusedError as error:
            print(f"    MLflow: not measured, {error}", flush=True)
            yield None
            return
        if runs:
            fill_mlflow(mlflow, runs)
        yield mlflow


def search_p95(mlflow: Mlflow, rounds: int) -> float:
    """95th percentile of a hundred runs by the slowest of the questions, in milliseconds."""
    caller, slowest = Caller(mlflow.url), 0.0
    for question in SEARCHES:
        body = {"experiment_ids": [EXPERIMENT], "max_results": 100, **question}
        times = []
        for _ in range(rounds):
            started = time.perf_counter()
            caller.post("/api/2.0/mlflow/runs/search", body)
            times.append((time.perf_counter() - started) * 1_000)
        slowest = max(slowest, p95(times))
    return slowest


def fill_mlflow(mlflow: Mlflow, runs: int) -> None:
    """Store runs with names, states and two metrics like ours, as rows."""
    random_numbers = random.Random(1)
    engine = create_engine(mlflow.store)
    for begin in range(0, runs, 1_000):
        rows, tags, metrics = [], [], []
        for number in range(begin, min(begin + 1_000, runs)):
            words = random_numbers.choice(("Pilot", "Baseline", "Sweep"))
            name = f"{words} {random_numbers.choice(('depth', 'warm-up'))} {number}"
            (state,) = random_numbers.choices(("FINISHED", "FAILED", "KILLED"), (7, 2, 1))
            run = uuid4().hex
            rows.append({"run": run, "name": name, "state": state, "started": 1_700_000_000_000 + number})
            tags.append({"run": run, "name": name})
            loss = random_numbers.random() * 5
            metrics += [{"run": run, "key": key, "loss": loss} for key in ("loss", "mfu")]
        with engine.begin() as connection:
            connection.execute(_RUN, rows)
            connection.execute(_TAG, tags)
            connection.execute(_METRIC, metrics)
    engine.dispose()


_RUN = text(
    "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time, source_version, "
    "lifecycle_stage, artifact_uri, experiment_id) "
    "VALUES (:run, :name, 'LOCAL', '', '', 'ada', :state, :started, '', 'active', 'file:///none', 0)"
)
_TAG = text("INSERT INTO tags (key, value, run_uuid) VALUES ('mlflow.runName', :name, :run)")
_METRIC = text(
    "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (:key, :loss, 0, 1, false, :run)"
)


def _new_database(site: Site) -> str | None:
    """An empty database on the PostgreSQL server of ours; None for SQLite."""
    if site.database.is_sqlite:
        return None
    name = f"mlflow_{uuid4().hex}"
    with psycopg.connect(site.database.url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    return site.database.url.replace("/postgres?", f"/{name}?")
