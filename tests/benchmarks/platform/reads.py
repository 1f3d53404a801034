"""Rows of ``make bench``: what pages read and agents send, over real HTTP.

    ingest      points a second of one node's batches, each durable when it is answered
    chart       a range of a series of a million points
    run-list    a hundred of a hundred thousand runs, filtered and sorted
    log-search  a page of a log of a million lines, and a search through all of it
    live-lag    from a posted point to the message that brings it

The server runs in its own process, on SQLite and, where it is installed, PostgreSQL. Milliseconds depend on the machine's
load, so each has a peer: the shortest answer of the same server (`/health`), measured alternately.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import numpy as np
from sqlalchemy import insert

from tests.benchmarks.platform.mlflow_peer import running_mlflow
from tests.benchmarks.platform.open_loop import p95
from tests.benchmarks.platform.server import Site, databases, running_site
from tests.benchmarks.report.entries import Entry, at_most
from trainwright.contracts.agent_protocol import MetricBlock
from trainwright.contracts.job_spec import EVENTS_NAME, OUTPUT_FOLDER
from trainwright_agent.tail import read_batch
from trainwright_backend.metrics.writing import append
from trainwright_backend.runs.tables import AttemptFile, LogChunk, Run, RunSummary

Entries = dict[str, Entry]

NAMES = (
    "loss",
    "grad_norm",
    "learning_rate",
    "tokens",
    "tokens_per_second",
    "mfu",
    "memory_bytes",
    "seconds",
)
SERIES = 20
CHUNK_BYTES = 256 * 1024


def ingest(given: argparse.Namespace) -> Entries:
    """One client posts the batches that an agent makes of an events file; MLflow's server gets as many points."""
    found: Entries = {}
    bodies, points = _batches(given.folder, 400 if given.toy else 20_000)
    with running_mlflow(given.folder, given.toy) as mlflow:
        for kind in databases():
            with running_site(kind) as site:
                turns = [
                    (_post_all(site, bodies, points), mlflow.rate()) for _ in range(1 if given.toy else 3)
                ]
                print(f"  {kind}: one step of {SERIES} series in {_small_batch(site):.1f} ms")
            ours, peer = (median(rates) for rates in zip(*turns, strict=True))
            reached = "goal" if ours >= 100_000 else "pass" if ours >= 20_000 else "no"
            marks = (20_000 / peer, 100_000 / peer)
            found[f"ingest-{kind}"] = Entry(ours, peer, ours / peer, "points/s", *marks, reached)
    return found


def _batches(folder: Path, steps: int) -> tuple[list[bytes], int]:
    out = folder / OUTPUT_FOLDER
    out.mkdir()
    random_numbers = random.Random(1)
    names = [*NAMES, *(f"custom_{n}" for n in range(SERIES - len(NAMES)))]
    with (out / EVENTS_NAME).open("w") as events:
        for step in range(1, steps + 1):
            values = {name: random_numbers.random() * 100 for name in names}
            line = {"type": "step", "time": "2026-01-01T00:00:00Z", "step": step, "values": values}
            events.write(json.dumps(line) + "\n")
    bodies, offset = [], 0
    while (batch := read_batch(folder, 1, 1, offset)) is not None:
        bodies.append(batch.model_dump_json().encode())
        offset = batch.next_offset
    return bodies, steps * SERIES


def _post_all(site: Site, bodies: Iterable[bytes], points: int) -> float:
    _, run = site.start_run()
    node = site.node()
    started = time.perf_counter()
    for body in bodies:
        node.ask("POST", f"/api/v1/agent/runs/{run}/batches", body)
    return points / (time.perf_counter() - started)


def _small_batch(site: Site) -> float:
    """Milliseconds of a batch of one step."""
    _, run = site.start_run()
    node = site.node()
    times = []
    for step in range(1, 31):
        block = {"steps": [step], "series": {f"s{n}": [0.5] for n in range(SERIES)}}
        body = {"fence": 1, "attempt": 1, "offset": step - 1, "next_offset": step, "metrics": [block]}
        times.append(_milliseconds(lambda body=body: node.post(f"/api/v1/agent/runs/{run}/batches", body)))
    return median(times)


def chart(given: argparse.Namespace) -> Entries:
    """A thousand points of ranges of a series, from 2,000 steps to a million; then twelve series in one request."""
    return _on_all(_chart, given)


def _chart(site: Site, given: argparse.Namespace) -> Entries:
    steps = 10_000 if given.toy else 1_000_000
    run_id, run = site.start_run()
    names = [f"s{n}" for n in range(12)]
    fill_series(site, run_id, names, steps)
    person = site.person()

    def look(names: list[str], after: int, to: int) -> None:
        query = {"names": names, "points": 1_000, "after_step": after, "to_step": to}
        person.get(f"{site.team_path}/runs/{run}/metrics", query)

    for width in (2_000, 60_000):
        ours, _ = in_turn(site, lambda w=width: look(["s0"], steps // 3, steps // 3 + w), _rounds(given))
        print(f"  {site.kind}, {width:,} steps: p95 {ours:.1f} ms")
    many, _ = in_turn(site, lambda: look(names, -1, steps), max(_rounds(given) // 4, 2))
    print(f"  {site.kind}, the whole of 12 series: p95 {many:.1f} ms")
    return {f"chart-{site.kind}": _waiting(*in_turn(site, lambda: look(["s0"], -1, steps), _rounds(given)))}


def fill_series(site: Site, run_id: UUID, names: list[str], steps: int, seed: int = 1) -> None:
    random_numbers = np.random.default_rng(seed)
    for begin in range(0, steps, 10_000):
        numbers = list(range(begin + 1, begin + 10_001))
        series = {name: random_numbers.random(10_000).tolist() for name in names}
        with site.database.write() as session:
            append(session, run_id, 1, [MetricBlock.model_construct(steps=numbers, series=series)])


def run_list(given: argparse.Namespace) -> Entries:
    """A hundred runs, sorted and filtered in several ways; the slowest counts."""
    return _on_all(_run_list, given)


def _run_list(site: Site, given: argparse.Namespace) -> Entries:
    fill_runs(site, 2_000 if given.toy else 100_000)
    person = site.person()
    found = []
    for query in ({"sort": "created"}, *FILTERS):
        asked: dict[str, Any] = {"limit": 100, **query}
        times = in_turn(site, lambda a=asked: person.get(f"{site.team_path}/runs", a), _rounds(given))
        print(f"  {site.kind}, {query}: p95 {times[0]:.1f} ms")
        found.append(times)
    return {f"run-list-{site.kind}": _waiting(*max(found))}


FILTERS: tuple[dict[str, str], ...] = (
    {"sort": "loss", "order": "asc", "state": "failed"},
    {"sort": "loss", "order": "asc", "q": "pilot depth"},
    {"sort": "mfu", "q": "no such name"},
)


def fill_runs(site: Site, runs: int) -> None:
    random_numbers = random.Random(1)
    columns = Run.__table__.columns.keys()
    for begin in range(0, runs, 1_000):
        rows, summaries = [], []
        for number in range(begin, begin + 1_000):
            name = f"{random_numbers.choice(('Pilot', 'Baseline', 'Sweep'))} {random_numbers.choice(('depth', 'warm-up'))} {number}"
            loss = random_numbers.random() * 5 if random_numbers.random() < 0.9 else None
            state = random_numbers.choices(("succeeded", "failed", "cancelled"), (7, 2, 1))[0]
            run = site.run_row(
                number, name=name, folded_name=name.casefold(), state=state, loss=loss, mfu=loss
            )
            rows.append({column: getattr(run, column) for column in columns})
            values = {} if loss is None else {"loss": loss, "mfu": loss}
            counts = {"step": 1, "attempt": 1, "spark_stride": 1, "peak_name": None, "bf16_peak_name": None}
            spark = [[float(n), 1.0] for n in range(32)]
            summaries.append({"run_id": run.id, "values": values, "spark": spark, **counts})
        with site.database.write() as session:
            session.execute(insert(Run), rows)
            session.execute(insert(RunSummary), summaries)


def log_search(given: argparse.Namespace) -> Entries:
    """A page from the middle, and a search for words that only the last line has."""
    return _on_all(_log_search, given)


def _log_search(site: Site, given: argparse.Namespace) -> Entries:
    lines = 20_000 if given.toy else 1_000_000
    run_id, run = site.start_run()
    fill_log(site, run_id, lines)
    person, path = site.person(), f"{site.team_path}/runs/{run}/logs/1/rank-0.log"

    def page() -> None:
        got = person.get(f"{path}/lines", {"first": lines // 2, "limit": 1_000})
        assert got["lines"][0]["number"] == lines // 2

    def search() -> None:
        got: dict[str, Any] = {"searched_to": 0, "end": False}
        while not got["end"]:
            got = person.get(f"{path}/search", {"q": "THE NEEDLE", "after_line": got["searched_to"]})
        assert [line["number"] for line in got["lines"]] == [lines]

    seconds = median(_milliseconds(search) for _ in range(1 if given.toy else 5)) / 1_000
    return {
        f"log-page-{site.kind}": _waiting(*in_turn(site, page, _rounds(given))),
        f"log-search-{site.kind}": at_most(
            seconds * 1e6 / lines, 1.0, "s a million lines, peer: the mark", 1, 1
        ),
    }


def fill_log(site: Site, run_id: UUID, lines: int) -> None:
    text = b"".join(
        b"2026-01-01 00:00:00 INFO step %d: loss 2.345, 12,345 tokens/s, grad norm 0.98\n" % n
        for n in range(lines - 1)
    )
    text += b"here is the needle\n"
    of_log = {"run_id": run_id, "attempt": 1, "file": "rank-0.log"}
    ends = 0
    for begin in range(0, len(text), CHUNK_BYTES):
        content = text[begin : begin + CHUNK_BYTES]
        with site.database.write() as session:
            row = {**of_log, "offset": begin, "lines_before": ends, "content": content}
            session.execute(insert(LogChunk).values(**row))
        ends += content.count(b"\n")
    with site.database.write() as session:
        session.add(AttemptFile(**of_log, bytes=len(text), line_ends=ends, has_open_line=False))


def live_lag(given: argparse.Namespace) -> Entries:
    """Milliseconds from posting a point until a stream of the same server delivers it; a second is allowed."""
    return _on_all(_live_lag, given)


def _live_lag(site: Site, given: argparse.Namespace) -> Entries:
    lags = _lags(site, site.start_run()[1], 10 if given.toy else 100)
    print(f"  {site.kind}: median {median(lags):.1f} ms")
    return {f"live-lag-{site.kind}": at_most(p95(lags), 1_000.0, "ms p95, peer: the mark", 1.0, 0.3)}


def _lags(site: Site, run: str, points: int) -> list[float]:
    came: dict[int, float] = {}
    last = threading.Event()
    connection = HTTPConnection(urlsplit(site.url).netloc)
    path = f"{site.team_path}/runs/{run}/metrics/stream"
    connection.request("GET", path, headers={"Authorization": f"Bearer {site.key}"})
    response = connection.getresponse()

    def listen() -> None:
        while not last.is_set():
            line = response.readline()
            if line.startswith(b"data: "):
                at = time.perf_counter()
                came.update(dict.fromkeys(json.loads(line[6:])["steps"], at))
                if points in came:
                    last.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    node, sent = site.node(), {}
    for step in range(1, points + 1):
        block = {"steps": [step], "series": {"loss": [0.5]}}
        body = {"fence": 1, "attempt": 1, "offset": step - 1, "next_offset": step, "metrics": [block]}
        sent[step] = time.perf_counter()
        node.post(f"/api/v1/agent/runs/{run}/batches", body)
        time.sleep(0.05)
    last.wait(30)
    connection.close()
    return [(came[step] - at) * 1_000 for step, at in sent.items()]


def _on_all(row: Callable[[Site, argparse.Namespace], Entries], given: argparse.Namespace) -> Entries:
    found: Entries = {}
    for kind in databases():
        with running_site(kind) as site:
            found |= row(site, given)
    return found


def _waiting(ours: float, peer: float) -> Entry:
    """Marks are 100 and 50 ms; the ratio shows how much is due to the machine."""
    reached = "goal" if ours <= 50 else "pass" if ours <= 100 else "no"
    return Entry(ours, peer, ours / peer, "ms p95, peer: /health", 100 / peer, 50 / peer, reached)


def in_turn(site: Site, ours: Callable[[], object], rounds: int) -> tuple[float, float]:
    """95th percentiles in milliseconds: ours, and the server's shortest answer."""
    caller = site.person()
    ours()
    times, health = [], []
    for _ in range(rounds):
        times.append(_milliseconds(ours))
        health.append(_milliseconds(lambda: caller.get("/api/v1/health")))
    return p95(times), p95(health)


def _rounds(given: argparse.Namespace) -> int:
    return 3 if given.toy else 40


def _milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1_000


PLATFORM_ROWS: dict[str, Callable[[argparse.Namespace], Entries]] = {
    "ingest": ingest,
    "chart": chart,
    "run-list": run_list,
    "log-search": log_search,
    "live-lag": live_lag,
}
