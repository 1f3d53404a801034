"""Runs that borrow slots save, leave and keep their places in the queue when another team's share covers a waiting run."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from tests.backend.scheduling.other_team import OtherTeam, set_share
from tests.backend.scripted_agent import Scene, Work
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.runs.tables import Attempt

BORROWED = "Pre-empted: it borrowed slots beyond its team's guaranteed share, and the share of another team covers a waiting run"


def started(scene: Scene, work: Work, minutes: float) -> None:
    """Pretend that the run's attempt started this long ago."""
    with scene.database.write() as session:
        mine = Attempt.run_id == parse_id("run", work.run_id)
        session.execute(update(Attempt).where(mine).values(started=now() - timedelta(minutes=minutes)))


def events(scene: Scene, work: Work) -> list[str]:
    found = scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json()
    return [event["message"] for event in found]


def test_a_borrowing_run_saves_leaves_and_resumes_at_its_place(scene: Scene) -> None:
    older, younger = scene.running(), scene.running()
    other = OtherTeam(scene, share=1)
    theirs = other.submit()
    started(scene, older, 30)
    started(scene, younger, 9)
    scene.control.sweep()
    assert younger.order("running") == "go", "its attempt is younger than min_run_minutes"
    assert older.order("running") == "save", "it is older, so it may be asked"
    sentence = "needs 1 slot, 0 free on 1 node; your team's guaranteed share covers it, and slots are being freed for it"
    assert other.sentence(theirs) == sentence
    started(scene, younger, 20)
    scene.control.sweep()
    assert younger.order("running") == "go", "one run that leaves is enough"
    shown = scene.show(older.run_id)
    assert (shown["state"], shown["verdict"], shown["reason"]) == ("stopping", "move", "preempted")
    assert shown["sentence"] == BORROWED
    older.save(3)
    assert older.ended("saved", step=3) == "queued"
    scene.control.sweep()
    assert other.sentence(theirs) == "placed on node-a"
    assert scene.show(older.run_id)["sentence"] == (
        "needs 1 slot, 0 free on 1 node; it was pre-empted and keeps its place"
    )
    assert BORROWED in events(scene, older)
    assert not any("globex" in text or "secret plan" in text for text in events(scene, older))
    work = scene.agent.claim(theirs)
    assert work.finish(10) == "succeeded"
    scene.control.sweep()
    again = scene.agent.claim(older.run_id)
    assert again.claim.job.resume is not None and again.claim.job.resume.step == 3
    assert again.finish(10) == "succeeded"


@pytest.mark.parametrize("lower", [0, 1])
def test_a_run_of_lower_priority_leaves_first_and_then_the_youngest(scene: Scene, lower: int) -> None:
    works = [scene.running(), scene.running()]
    started(scene, works[0], 30)
    started(scene, works[1], 40)
    run = f"{scene.runs}/{works[lower].run_id}"
    assert scene.site.admin.patch(run, json={"priority": "low"}).status_code == 200
    OtherTeam(scene, share=1).submit()
    scene.control.sweep()
    assert [work.order("running") for work in works] == ["save" if n == lower else "go" for n in range(2)]


@pytest.mark.slow(target="databases")
def test_no_team_is_brought_below_its_share(scene: Scene) -> None:
    works = [scene.running(), scene.running()]
    for work in works:
        started(scene, work, 30)
    set_share(scene, 1)
    other = OtherTeam(scene, share=2)
    first, second = other.submit(), other.submit()
    for _ in range(2):
        scene.control.sweep()
        assert sorted(work.order("running") for work in works) == ["go", "save"]
    assert other.sentence(first).endswith("slots are being freed for it")
    assert "your team's guaranteed share covers it" in other.sentence(second)
    assert "being freed" not in other.sentence(second)


def test_a_run_partly_within_its_teams_share_stays(scene: Scene) -> None:
    work = scene.running(slots=2)
    started(scene, work, 30)
    set_share(scene, 1)
    other = OtherTeam(scene, share=2)
    other.submit()
    scene.control.sweep()
    assert work.order("running") == "go"
    set_share(scene, 0)
    scene.control.sweep()
    assert work.order("running") == "save"


@pytest.mark.slow(target="databases")
def test_a_run_beyond_its_own_teams_share_makes_nobody_leave(scene: Scene) -> None:
    work = scene.running(slots=2)
    started(scene, work, 30)
    other = OtherTeam(scene, share=1)
    theirs = other.submit(slots=2)
    scene.control.sweep()
    assert work.order("running") == "go"
    assert other.sentence(theirs) == "needs 2 slots, 0 free on 1 node"


@pytest.mark.slow(target="databases")
def test_a_run_that_leaves_anyway_makes_room_first(scene: Scene) -> None:
    works = [scene.running(), scene.running()]
    for work in works:
        started(scene, work, 30)
    assert scene.cancel(works[0].run_id).status_code == 202
    other = OtherTeam(scene, share=1)
    theirs = other.submit()
    scene.control.sweep()
    assert works[1].order("running") == "go"
    assert other.sentence(theirs).endswith("slots are being freed for it")


@pytest.mark.slow(target="databases")
def test_an_export_is_not_interrupted(scene: Scene) -> None:
    work = scene.running(slots=2, last_step=10)
    work.save(10)
    assert work.order("completing") == "go"
    started(scene, work, 30)
    OtherTeam(scene, share=1).submit()
    scene.control.sweep()
    assert work.order("completing") == "go"


def test_a_person_may_pause_or_cancel_a_run_that_is_being_preempted(scene: Scene) -> None:
    work = scene.running(slots=2)
    started(scene, work, 30)
    other = OtherTeam(scene, share=1)
    other.submit()
    scene.control.sweep()
    assert work.order("running") == "save"
    assert scene.site.admin.post(f"{scene.runs}/{work.run_id}/pause").json()["verdict"] == "pause"
    work.save(3)
    assert work.ended("saved", step=3) == "paused"
    scene.control.sweep()
    assert scene.used() == 0


@pytest.mark.slow(target="databases")
def test_a_preempted_attempt_does_not_count_as_a_failure(scene: Scene) -> None:
    work = scene.running(resources={"device": "cpu", "slots_per_node": 1, "max_attempts": 2})
    blocker = scene.running()
    started(scene, work, 30)
    other = OtherTeam(scene, share=1)
    theirs = other.submit()
    scene.control.sweep()
    assert work.order("running") == "save"
    assert work.ended("crashed") == "queued", "it failed while it saved, and the run was leaving anyway"
    scene.control.sweep()
    assert scene.agent.claim(theirs).finish(10) == "succeeded"
    scene.control.sweep()
    again = scene.agent.claim(work.run_id)
    assert again.claim.attempt == 2
    assert again.ended("crashed") == "retry_wait", "the first attempt that counts"
    assert blocker.order("running") == "go"
