"""Row ``reads``: the chart of a series of a million points, and searches over a hundred thousand runs, one request at a time.

MLflow's server gets the same questions about as many runs, in turn. It has no route that returns a curve at a screen's width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.benchmarks.load.peers import mlflow_or_none, search_p95
from tests.benchmarks.load.processes import cpu_shares
from tests.benchmarks.load.row import Load, Measure, Row
from tests.benchmarks.load.size import P95_MS
from tests.benchmarks.load.table import Value, at_most
from tests.benchmarks.platform.reads import FILTERS, fill_runs, fill_series, in_turn

QUESTIONS: tuple[dict[str, str], ...] = ({"sort": "created"}, *FILTERS)


@contextmanager
def reads(load: Load) -> Iterator[Measure]:
    """95th percentiles; of the searches, the slowest counts."""
    site, size = load.site, load.size
    fill_runs(site, size.searched_runs)
    run_id, run = site.start_run()
    fill_series(site, run_id, ["loss"], size.charted_points)
    person = site.person()

    def chart() -> None:
        person.get(f"{site.team_path}/runs/{run}/metrics", {"names": ["loss"], "points": 1_000})

    def search(question: dict[str, Any]) -> None:
        person.get(f"{site.team_path}/runs", {"limit": 100, **question})

    def measure() -> list[Value]:
        with cpu_shares(site.processes):
            charted, health = in_turn(site, chart, size.read_rounds)
            searched = [
                in_turn(site, partial(search, question), size.read_rounds)[0] for question in QUESTIONS
            ]
        peer = None if mlflow is None else search_p95(mlflow, size.read_rounds)
        return [
            Value("chart p95", charted, "ms", at_most(P95_MS)),
            Value("search p95", max(searched), "ms", at_most(P95_MS), peer),
            Value("shortest answer p95", health, "ms"),
        ]

    with mlflow_or_none(site, size.toy, size.searched_runs) as mlflow:
        yield measure


READ_ROWS: dict[str, Row] = {"reads": reads}
