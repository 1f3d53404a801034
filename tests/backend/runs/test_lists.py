"""Lists of runs: filters, orders, and pages that are stable while runs are added and removed."""

import json
import random
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event as hooks
from sqlalchemy import insert, select, text, update

from tests.backend.scripted_agent import Scene
from tests.selection import partly_slow
from trainwright.contracts.api.runs import RunSort
from trainwright_backend.core.ids import new_id, parse_id, public_id
from trainwright_backend.runs.tables import Run, RunEvent, RunSummary

STATES = ("cancelled", "failed", "succeeded")


@pytest.fixture
def crowd(scene: Scene) -> list[dict[str, Any]]:
    """About sixty ended runs. A third have no values, and many have equal ones."""
    first = scene.submit()
    scene.cancel(first)
    rng = random.Random(3)
    with scene.database.write() as session:
        row = dict(session.execute(select(Run.__table__)).mappings().one())
        rows = [_like(row, number, rng) for number in range(60)]
        session.execute(insert(Run), rows)
        events = [_event(row) for row in rows]
        session.execute(insert(RunEvent), events)
    assert scene.site.admin.delete(f"{scene.runs}/{first}").status_code == 200
    return rows


def _like(row: dict[str, Any], number: int, rng: random.Random) -> dict[str, Any]:
    name = f"{rng.choice(('Größe', 'baseline', '100% LR_x', 'Sweep'))} {rng.choice('abc')} {number}"
    has_numbers = rng.random() < 0.7
    return row | {
        "id": new_id(),
        "name": name,
        "folded_name": name.casefold(),
        "state": rng.choice(STATES),
        "created_by_name": rng.choice(("Ada", "Ben")),
        "created_by": row["created_by"] if rng.random() < 0.5 else None,
        "event_sequence": 1,
        "loss": rng.choice((0.5, 1.0, 1.5, 2.25)) if has_numbers else None,
        "mfu": rng.random() if has_numbers else None,
        "tokens_per_second": float(rng.randrange(10)) if has_numbers else None,
        "last_step": rng.randrange(1, 5) if has_numbers else None,
        "ended": row["created"] + timedelta(microseconds=rng.randrange(5)) if has_numbers else None,
    }


def _event(run: dict[str, Any]) -> dict[str, Any]:
    kept = {name: run[name] for name in ("state", "verdict", "reason", "fence", "attempt", "message")}
    return kept | {"run_id": run["id"], "sequence": 1, "time": run["created"], "type": "state", "step": None}


def pages(scene: Scene, between: Callable[[int], None] = lambda page: None, **query: Any) -> list[str]:
    """Names of all runs of a list, read in small pages."""
    names: list[str] = []
    cursor: dict[str, str] = {}
    for number in range(100):
        response = scene.site.admin.get(scene.runs, params={"limit": 7} | query | cursor)
        assert response.status_code == 200, response.text
        names += [run["name"] for run in response.json()["items"]]
        if response.json()["next_cursor"] is None:
            return names
        cursor = {"cursor": response.json()["next_cursor"]}
        between(number)
    raise AssertionError("the list has no end")


COLUMN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "created": lambda run: run["id"],
    "name": lambda run: run["folded_name"],
    "loss": lambda run: run["loss"],
    "mfu": lambda run: run["mfu"],
    "tokens_per_second": lambda run: run["tokens_per_second"],
    "step": lambda run: run["last_step"],
    "ended": lambda run: run["ended"],
}


@pytest.mark.parametrize("order", partly_slow(["asc", "desc"], ["asc"], target="databases"))
def test_every_order_has_every_run_once_with_missing_values_last(
    scene: Scene, crowd: list[dict[str, Any]], order: str
) -> None:
    for sort, key in COLUMN.items():
        found = pages(scene, sort=sort, order=order)
        numbered = [run for run in crowd if key(run) is not None]
        without = [run for run in crowd if key(run) is None]
        backwards = order == "desc"
        numbered.sort(key=lambda run: (key(run), run["id"]), reverse=backwards)
        without.sort(key=lambda run: run["id"], reverse=backwards)
        assert found == [run["name"] for run in [*numbered, *without]], sort


@pytest.mark.both_databases
def test_filters_are_combined(scene: Scene, crowd: list[dict[str, Any]]) -> None:
    newest = sorted(crowd, key=lambda run: run["id"], reverse=True)

    def expect(rule: Callable[[dict[str, Any]], bool], **query: Any) -> None:
        found = pages(scene, **query)
        assert found == [run["name"] for run in newest if rule(run)], query
        assert found

    expect(lambda run: run["state"] == "failed", state="failed")
    expect(lambda run: run["state"] != "succeeded", state=["failed", "cancelled"])
    expect(lambda run: "grösse" in run["folded_name"], q="GRÖSSE")
    expect(lambda run: "100% lr_x" in run["folded_name"], q="lr_X 100%")
    expect(lambda run: run["created_by_name"] == "Ben", by="Ben")
    expect(lambda run: run["created_by"] is not None, by="me")
    expect(lambda run: run["state"] == "failed" and "sw" in run["folded_name"], state="failed", q="SW ")
    assert pages(scene, q="100_") == [], "there are no wildcards"


def test_a_page_neither_repeats_nor_skips_unchanged_runs(scene: Scene, crowd: list[dict[str, Any]]) -> None:
    moving = {run["name"]: run["id"] for run in crowd[::7]}
    still = [run for run in crowd if run["name"] not in moving]
    ids = iter(moving.values())

    def disturb(page: int) -> None:
        run_id = next(ids, None)
        if run_id is not None:
            with scene.database.write() as session:
                session.execute(update(Run).where(Run.id == run_id).values(loss=page * 0.3))

    found = [name for name in pages(scene, disturb, sort="loss", order="asc") if name not in moving]
    still.sort(key=lambda run: (run["loss"] is None, run["loss"] or 0, run["id"]))
    assert found == [run["name"] for run in still]


def test_an_invalid_cursor_is_refused(scene: Scene, crowd: list[dict[str, Any]]) -> None:
    get = scene.site.admin.get
    cursor = get(scene.runs, params={"limit": 5, "sort": "loss"}).json()["next_cursor"]
    assert get(scene.runs, params={"sort": "loss", "cursor": cursor}).status_code == 200
    real = public_id("run", crowd[0]["id"])
    bad = ("1", True, {"a": 1}, [1], float("nan"), float("inf"))
    forged = [json.dumps(["loss", "desc", value, real]) for value in bad] + ['["loss", "desc", 1.0, "run_x"]']
    forged += ["", "[]", "7", "[" * 400]
    wrong = [{"sort": "mfu", "cursor": cursor}, {"sort": "loss", "order": "asc", "cursor": cursor}]
    wrong += [{"sort": "loss", "cursor": urlsafe_b64encode(item.encode()).decode()} for item in forged]
    wrong += [{"sort": "loss", "cursor": item} for item in ("ä", "%%%", cursor[:-3])]
    times = ("soon", "2026-11-21", "2026-11-21T13:00:00", "9999-12-31T23:59:59-01:00", 1)
    values = (("name", "a\0b"), ("name", "\ud800"), ("name", 1), ("step", 2**70), ("step", 0.5))
    for sort, value in (*values, *(("ended", time) for time in times)):
        payload = json.dumps([sort, "desc", value, real])
        wrong.append({"sort": sort, "cursor": urlsafe_b64encode(payload.encode()).decode()})
    for query in wrong:
        response = get(scene.runs, params=query)
        assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "cursor"), query
    many = get(scene.runs, params={"q": "a " * 11})
    assert (many.status_code, many.json()["errors"][0]["field"]) == (422, "q")


def test_a_list_has_the_metrics_of_the_summary(scene: Scene) -> None:
    work = scene.running(last_step=4, steps=100)
    values = {"loss": [2.5], "mfu": [0.4], "tokens_per_second": [1e4]}
    work.send(work.batch(metrics=[{"steps": [5], "series": values}]))
    assert listed(scene, work.run_id) == (5, 2.5, 0.4, 1e4)
    work.ended("crashed")
    work = scene.again(work.run_id)
    work.begin(resume_step=2)
    assert listed(scene, work.run_id) == (2, 0.5, None, None), "removed points are not shown"


def listed(scene: Scene, run_id: str) -> tuple[Any, ...]:
    with scene.database.read() as session:
        run = session.get_one(Run, parse_id("run", run_id))
        summary = session.get_one(RunSummary, run.id)
        assert run.loss == summary.values.get("loss")
        return run.last_step, run.loss, run.mfu, run.tokens_per_second


def test_a_page_is_found_in_an_index_of_the_team(scene: Scene, crowd: list[dict[str, Any]]) -> None:
    """In every order a page is found by index alone, without sorting, so other runs cost nothing."""
    asked = {"state": ["failed", "succeeded"], "q": "a", "by": "Ada", "limit": 5}
    for sort in RunSort:
        statement, values = _statement(scene, {**asked, "sort": sort, "order": "asc"})
        plan = _plan(scene, statement, values)
        assert f"ix_run_by_{sort}" in plan, plan
        assert "COVERING INDEX" in plan or "Index Only Scan" in plan, plan
        finding, _, _ = plan.partition("SCAN anon_1")  # after it SQLite sorts the rows of one page
        assert "TEMP B-TREE" not in finding and "Sort" not in finding, plan
    with scene.database.write() as session:
        session.execute(text("DROP INDEX ix_run_by_loss"))
    assert "ix_run_by_loss" not in _plan(scene, *_statement(scene, {**asked, "sort": "loss"}))


def _statement(scene: Scene, query: dict[str, Any]) -> tuple[str, Any]:
    """The statement that selects the first page's ids, with its values."""
    heard: list[tuple[str, Any]] = []

    def hear(_c: object, _cursor: object, statement: str, values: Any, *_: object) -> None:
        if "folded_name" in statement.partition("WHERE")[2]:
            heard.append((statement, values))

    hooks.listen(scene.database.engine, "before_cursor_execute", hear)
    try:
        assert scene.site.admin.get(scene.runs, params=query).status_code == 200
    finally:
        hooks.remove(scene.database.engine, "before_cursor_execute", hear)
    return heard[0]


def _plan(scene: Scene, statement: str, values: Any) -> str:
    with scene.database.read() as session:
        connection = session.connection()
        command = "EXPLAIN QUERY PLAN "
        if not scene.database.is_sqlite:
            command = "EXPLAIN "
            for way in ("seqscan", "bitmapscan", "sort"):  # faster than an index for only sixty rows
                connection.exec_driver_sql(f"SET LOCAL enable_{way} = off")
        return " | ".join(
            " ".join(map(str, row)) for row in connection.exec_driver_sql(command + statement, values)
        )


def test_a_run_ended_by_a_newer_version_is_shown_with_an_unknown_reason(scene: Scene) -> None:
    work = scene.running()
    assert work.ended("diverged") == "failed"
    with scene.database.write() as session:
        for table in ("run", "attempt", "run_event"):
            session.execute(text(f"UPDATE {table} SET reason = 'too_hot' WHERE reason IS NOT NULL"))
        session.execute(text("UPDATE placement SET end_reason = 'too_hot' WHERE end_reason IS NOT NULL"))
    listed = scene.site.admin.get(scene.runs)
    assert listed.status_code == 200, listed.text
    (found,) = [item for item in listed.json()["items"] if item["id"] == work.run_id]
    assert (found["state"], found["reason"]) == ("failed", "unknown")
    assert scene.show(work.run_id)["reason"] == "unknown"
    marks = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics").json()["attempts"]
    assert [mark["reason"] for mark in marks] == ["unknown"]
    assert scene.site.admin.delete(f"{scene.runs}/{work.run_id}").status_code == 200
