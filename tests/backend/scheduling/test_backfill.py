"""Runs that are placed ahead of their turn, in slots that an earlier run waits for."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from tests.backend.scripted_agent import Scene, Work
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.runs.tables import Run

HOURS: dict[str, Any] = {"device": "cpu", "slots_per_node": 1}


def late(scene: Scene, work: Work) -> None:
    """Pretend that the run that waits for its slots was expected a minute ago."""
    with scene.database.write() as session:
        run = session.get_one(Run, parse_id("run", work.run_id))
        assert run.backfill_until is not None
        run.backfill_until = now() - timedelta(minutes=1)


def test_a_run_is_placed_ahead_of_its_turn_only_if_it_ends_before_the_head_is_expected(scene: Scene) -> None:
    first = scene.running(resources=HOURS | {"max_hours": 3})
    head = scene.submit(slots=2)
    too_long = scene.submit(resources=HOURS | {"max_hours": 2.99})  # and two minutes to start and save
    unknown = scene.submit()
    short = scene.submit(resources=HOURS | {"max_hours": 2.5})
    scene.control.sweep()
    assert scene.show(short)["sentence"] == "placed on node-a, ahead of its turn"
    for run_id in (head, too_long, unknown):
        assert scene.show(run_id)["sentence"].startswith("needs "), run_id
    with scene.database.read() as session:
        run = session.get_one(Run, parse_id("run", short))
        assert run.backfill_for == parse_id("run", head) and run.backfill_until is not None
        assert abs(run.backfill_until - now() - timedelta(hours=3)) < timedelta(minutes=1)
        others = session.scalars(select(Run.backfill_for).where(Run.id != run.id)).all()
        assert set(others) == {None}
    assert first.order("running") == "go"


@pytest.mark.slow(target="databases")
def test_a_run_that_takes_longer_than_expected_leaves_for_the_head(scene: Scene) -> None:
    first = scene.running(resources=HOURS | {"max_hours": 3})
    head = scene.submit(slots=2)
    early = scene.running(resources=HOURS | {"max_hours": 1})
    assert first.ended("bad_job") == "failed"
    scene.control.sweep()
    assert early.order("running") == "go", "the head was expected later"
    late(scene, early)
    scene.control.sweep()
    assert early.order("running") == "save"
    assert "took longer than expected" in scene.show(early.run_id)["sentence"]
    early.save(3)
    assert early.ended("saved", step=3) == "queued"
    scene.control.sweep()
    assert scene.show(head)["sentence"] == "placed on node-a"
    assert scene.agent.claim(head).finish(10) == "succeeded"
    scene.control.sweep()
    again = scene.agent.claim(early.run_id)
    assert again.claim.job.resume is not None and again.claim.job.resume.step == 3
    with scene.database.read() as session:
        assert session.get_one(Run, parse_id("run", early.run_id)).backfill_for is None, "it is its turn"


def test_a_late_run_stays_if_nobody_needs_its_slots(scene: Scene) -> None:
    first = scene.running(resources=HOURS | {"max_hours": 3})
    head = scene.submit(slots=2)
    early = scene.running(resources=HOURS | {"max_hours": 1})
    late(scene, early)
    scene.cancel(head)
    scene.submit(slots=2)
    scene.control.sweep()
    assert [work.order("running") for work in (first, early)] == ["go", "go"]


def test_the_measured_speed_of_an_equal_run_says_how_long_a_run_takes(scene: Scene) -> None:
    work = scene.running(last_step=1, steps=1_000)
    steps = list(range(2, 12))
    block = {
        "steps": steps,
        "series": {
            "loss": [1.0] * 10,
            "tokens_per_second": [100_000.0] * 10,
            "eta_seconds": [7_200.0] * 10,
        },
    }
    assert work.send(work.batch(metrics=[block])).status_code == 200
    scene.submit(slots=2)
    long = scene.submit(steps=1_000_000)
    short = scene.submit(steps=100)
    scene.control.sweep()
    assert scene.show(short)["sentence"] == "placed on node-a, ahead of its turn"
    assert scene.show(long)["sentence"].startswith("needs 1 slot")
