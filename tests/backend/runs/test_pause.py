"""A pause frees a run's slots and quota and loses no progress; resuming queues it again."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from httpx import Response
from sqlalchemy import select

from tests.backend.attempts.test_lifecycle import LEASE_SECONDS, STATES, in_retry_wait, wait_after_crash
from tests.backend.scripted_agent import Agent, Scene, Work
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import Verdict
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import new_id, parse_id
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Attempt, Placement, PlacementEnd, PlacementSlot
from trainwright_backend.runs.transitions import lock_run, stop


def pause(scene: Scene, run_id: str) -> Response:
    return scene.site.admin.post(f"{scene.runs}/{run_id}/pause")


def resume(scene: Scene, run_id: str) -> Response:
    return scene.site.admin.post(f"{scene.runs}/{run_id}/resume")


def code(response: Response) -> tuple[int, str]:
    return response.status_code, response.json().get("code", "")


def ends(scene: Scene, run_id: str) -> list[str]:
    """Why each attempt ended."""
    marks = scene.site.admin.get(f"{scene.runs}/{run_id}/metrics").json()["attempts"]
    return [mark["reason"] for mark in marks]


def notes(scene: Scene, run_id: str) -> list[dict[str, Any]]:
    events = scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()
    return [event for event in events if event["type"] == "note"]


def test_the_time_of_a_run_is_that_of_its_attempts_without_pauses(scene: Scene) -> None:
    work = scene.running()
    assert scene.show(work.run_id)["run_seconds"] == 0.0
    pause(scene, work.run_id)
    assert work.ended("saved") == "paused"
    [mark] = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics").json()["attempts"]
    key = parse_id("run", work.run_id)
    with scene.database.write() as session:
        attempt = session.get_one(Attempt, (key, mark["attempt"]))
        attempt.started, attempt.ended = now() - timedelta(hours=3), now() - timedelta(hours=2)
        earlier = {"run_id": key, "number": 7, "fence": 99, "resume_step": 0, "reason": EndCode.SAVED}
        session.add(Attempt(**earlier, started=now() - timedelta(minutes=30), ended=now()))
    assert scene.show(work.run_id)["run_seconds"] == pytest.approx(5_400, abs=1)
    [listed] = scene.site.admin.get(scene.runs).json()["items"]
    assert listed["run_seconds"] == pytest.approx(5_400, abs=1)


@pytest.mark.slow(target="databases")
def test_a_pause_in_any_state_frees_slots_and_quota_and_the_run_resumes(scene: Scene) -> None:
    for arrange in STATES:
        run_id, work = arrange(scene)
        response = pause(scene, run_id)
        assert response.status_code == 202, arrange.__name__
        if work is not None:
            assert (response.json()["state"], response.json()["verdict"]) == ("stopping", "pause")
            assert scene.used() == 1, "occupied until the node has released it"
            assert work.order("running") == "save"
            assert work.order("ended", exit={"code": "saved", "message": "as requested"}) == "wait"
            assert work.ended("saved") == "paused", arrange.__name__
        shown = scene.show(run_id)
        assert (shown["state"], shown["nodes"], scene.used()) == ("paused", [], 0), arrange.__name__
        with scene.database.read() as session:
            assert session.scalars(select(PlacementSlot)).all() == []
        assert scene.agent.heartbeat() == []
        scene.check_invariants()

        assert resume(scene, run_id).json()["state"] == "queued"
        assert scene.used() == 0
        scene.control.sweep()
        assert scene.used() == 1
        again = scene.agent.claim(run_id)
        assert again.finish(10) == "succeeded", arrange.__name__
        assert scene.used() == 0
        scene.check_invariants()


def test_a_pause_is_described_in_state_and_events(scene: Scene) -> None:
    queued = scene.submit()
    assert pause(scene, queued).json()["sentence"] == "Paused before its first step"
    scene.cancel(queued)
    work = scene.start()
    assert pause(scene, work.run_id).json()["sentence"] == "stopping to pause"
    work.ended("stopped")
    scene.cancel(work.run_id)

    work = scene.running(last_step=4)
    assert pause(scene, work.run_id).json()["sentence"] == "saving step 4 to pause"
    work.save(4)
    work.ended("saved", step=4)
    assert scene.show(work.run_id)["sentence"] == "Paused at step 4 of 10"
    moves = scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json()
    assert [event["message"] for event in moves if event["state"] == "paused"] == ["Paused by Ada"]
    resume(scene, work.run_id)
    moves = scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json()
    assert moves[-1]["message"] == "Resumed by Ada"


def test_a_resumed_run_continues_from_the_saved_state(scene: Scene) -> None:
    work = scene.running(last_step=4)
    pause(scene, work.run_id)
    work.step(5, 5)
    saved = work.save(5)
    assert work.ended("saved", step=5) == "paused"
    assert ends(scene, work.run_id) == ["saved"]
    assert scene.show(work.run_id)["paused"] is not None
    resume(scene, work.run_id)
    assert scene.show(work.run_id)["paused"] is None
    scene.control.sweep()
    again = scene.agent.claim(work.run_id)
    assert again.claim.job.resume is not None
    assert (again.claim.job.resume.step, again.claim.job.resume.digest) == (5, saved.digest)
    assert (again.claim.attempt, again.claim.fence) == (2, 2)


def test_a_resumed_run_waits_for_its_team_s_slots(scene: Scene) -> None:
    work = scene.running(slots=2)
    pause(scene, work.run_id)
    work.ended("saved")
    scene.site.admin.put(f"{scene.site.path}/quota/cpu", json={"limit": 2})
    other = scene.start(slots=2)
    assert resume(scene, work.run_id).json()["state"] == "queued"
    scene.control.sweep()
    waits = "needs 2 CPU slots; your team uses 2 of 2 (pilot)"
    assert scene.show(work.run_id)["sentence"] == waits
    scene.cancel(other.run_id)
    assert other.ended("stopped") == "cancelled"
    scene.control.sweep()
    assert scene.show(work.run_id)["sentence"] == "placed on node-a"


def test_resuming_more_than_the_team_s_limit_is_refused_and_the_run_stays_paused(scene: Scene) -> None:
    work = scene.running(slots=2)
    pause(scene, work.run_id)
    work.ended("saved")
    scene.site.admin.put(f"{scene.site.path}/quota/cpu", json={"limit": 1})
    refused = resume(scene, work.run_id)
    assert code(refused) == (403, "quota_exceeded")
    assert "needs 2 CPU slots; your team may use 1 CPU slot at once" in refused.json()["detail"]
    assert (scene.state(work.run_id), scene.used()) == ("paused", 0)
    scene.site.admin.put(f"{scene.site.path}/quota/cpu", json={"limit": 2})
    assert resume(scene, work.run_id).status_code == 202
    scene.check_invariants()


def test_pausing_twice_is_harmless_and_invalid_pauses_are_refused(scene: Scene) -> None:
    work = scene.running()
    assert code(resume(scene, work.run_id)) == (409, "run_not_paused")
    assert pause(scene, work.run_id).status_code == pause(scene, work.run_id).status_code == 202
    refused = resume(scene, work.run_id)
    assert code(refused) == (409, "run_not_paused")
    assert "still saving" in refused.json()["detail"]
    assert work.ended("saved") == "paused"
    assert pause(scene, work.run_id).json()["state"] == "paused"
    assert resume(scene, work.run_id).status_code == 202
    assert code(resume(scene, work.run_id)) == (409, "run_not_paused")
    scene.cancel(work.run_id)
    assert code(pause(scene, work.run_id)) == (409, "run_is_final")
    assert code(resume(scene, work.run_id)) == (409, "run_not_paused")
    assert scene.used() == 0
    scene.check_invariants()


def test_a_cancel_replaces_a_pause_but_a_pause_never_replaces_a_cancel(scene: Scene) -> None:
    work = scene.running()
    pause(scene, work.run_id)
    assert work.order("running") == "save"
    assert scene.cancel(work.run_id).json()["verdict"] == "cancel"
    assert work.order("running") == "kill"
    refused = pause(scene, work.run_id)
    assert code(refused) == (409, "run_is_stopping")
    assert "will be cancelled" in refused.json()["detail"]
    assert work.ended("stopped") == "cancelled"
    assert scene.used() == 0
    scene.check_invariants()


def test_a_paused_run_is_deleted_only_after_it_was_cancelled(scene: Scene) -> None:
    work = scene.running()
    pause(scene, work.run_id)
    work.ended("saved")
    address = f"{scene.runs}/{work.run_id}"
    assert code(scene.site.admin.delete(address)) == (409, "run_not_final")
    assert scene.cancel(work.run_id).json()["state"] == "cancelled"
    assert scene.used() == 0, "nothing was occupied, so nothing is released"
    scene.check_invariants()
    assert scene.site.admin.delete(address).status_code < 300


def test_pauses_never_count_as_failures(scene: Scene) -> None:
    run_id = scene.submit(resources={"device": "cpu", "max_attempts": 2})
    for _ in range(4):
        scene.control.sweep()
        work = scene.agent.claim(run_id)
        assert work.order() == "go"
        work.begin()
        pause(scene, run_id)
        assert work.ended("stopped") == "paused"
        resume(scene, run_id)
    scene.control.sweep()
    work = scene.agent.claim(run_id)
    first_wait = wait_after_crash(scene, work)
    assert first_wait == pytest.approx(scene.site.app.state.settings.timers.backoff_seconds, abs=0.5)
    assert scene.again(run_id).ended("crashed") == "failed", "the second counted end is the last one allowed"
    assert scene.show(run_id)["reason"] == "too_many_attempts"


@pytest.mark.parametrize("how", ["crashed", "diverged", "disk_full"])
def test_a_run_whose_attempt_fails_while_saving_is_paused_with_an_event(scene: Scene, how: str) -> None:
    work = scene.running()
    pause(scene, work.run_id)
    assert work.ended(how, "rank 1 was killed", step=3) == "paused"
    assert ends(scene, work.run_id) == ["stopped"]
    (note,) = notes(scene, work.run_id)
    assert "rank 1 was killed" in note["message"]
    assert note["step"] == 3
    scene.check_invariants()


def test_a_checkpoint_found_damaged_while_pausing_is_not_used_again(scene: Scene) -> None:
    work = scene.running(last_step=6)
    work.save(3)
    work.save(6)
    assert work.ended("crashed") == "retry_wait"
    work = scene.again(work.run_id)
    pause(scene, work.run_id)
    assert work.ended("checkpoint_invalid", step=6) == "paused"
    resume(scene, work.run_id)
    scene.control.sweep()
    point = scene.agent.claim(work.run_id).claim.job.resume
    assert point is not None
    assert point.step == 3


def test_a_trainer_that_finished_before_a_pause_only_exports_later(scene: Scene) -> None:
    work = scene.running(last_step=10)
    work.save(10)
    work.order("completing")
    assert pause(scene, work.run_id).json()["sentence"] == "stopping the export to pause"
    assert work.ended("saved", step=10) == "paused"
    resume(scene, work.run_id)
    scene.control.sweep()
    again = scene.agent.claim(work.run_id)
    assert again.claim.job.kind == "export"
    assert again.finish(10) == "succeeded"


def test_a_run_with_a_committed_export_succeeds_despite_a_pause(
    scene: Scene,
) -> None:
    work = scene.running(last_step=10)
    work.save(10)
    work.order("completing")
    work.save(10, "export")
    pause(scene, work.run_id)
    assert work.ended("finished", step=10) == "succeeded"
    shown = scene.show(work.run_id)
    assert (shown["verdict"], shown["reason"], scene.used()) == (None, "finished", 0)
    assert ends(scene, work.run_id) == ["finished"]
    assert code(resume(scene, work.run_id)) == (409, "run_not_paused")
    kept = scene.site.admin.get(f"{scene.runs}/{work.run_id}/checkpoints").json()
    assert [item["kind"] for item in kept].count("export") == 1
    scene.check_invariants()


def test_a_run_that_finished_without_its_export_is_paused_and_a_cancelled_one_is_cancelled(
    scene: Scene,
) -> None:
    for stop_it, becomes in ((partial(pause, scene), "paused"), (scene.cancel, "cancelled")):
        work = scene.running(last_step=10)
        work.save(10)
        work.order("completing")
        if becomes == "cancelled":
            work.save(10, "export")
        stop_it(work.run_id)
        assert work.ended("finished", step=10) == becomes
        scene.check_invariants()
        scene.cancel(work.run_id)


def test_a_run_is_paused_even_if_its_node_goes_silent_while_pausing(scene: Scene) -> None:
    work = scene.running()
    scene.control.sweep()
    pause(scene, work.run_id)
    scene.control.let_pass(LEASE_SECONDS)
    assert (scene.state(work.run_id), scene.used()) == ("paused", 0)
    assert work.renew("running").json()["code"] == "stale_fence"
    scene.check_invariants()


def test_a_run_succeeds_if_its_node_goes_silent_after_committing_the_export(scene: Scene) -> None:
    work = scene.running(last_step=10)
    work.save(10)
    work.order("completing")
    work.save(10, "export")
    pause(scene, work.run_id)
    scene.control.let_pass(LEASE_SECONDS)
    assert (scene.state(work.run_id), scene.used()) == ("succeeded", 0)
    scene.check_invariants()


def test_a_pause_replaces_a_retry_keeps_its_reason_and_only_stops_what_is_left(scene: Scene) -> None:
    """One of two nodes crashed; the other has not released its placement yet."""
    work = scene.running()
    other = Agent.join(scene.site, "node-b")
    with scene.database.write() as session:
        run = lock_run(session, parse_id("run", work.run_id))
        assert run is not None
        node = session.scalars(select(Node).where(Node.name == other.name)).one()
        record = {"node_id": node.id, "node_name": node.name, "device": "cpu", "slots": [0], "downloads": []}
        gone = {
            "claim_id": "c" * 32,
            "fence": run.fence,
            "closed": PlacementEnd.ENDED,
            "renewal": 0,
            "end_reason": EndCode.CRASHED,
        }
        session.add(Placement(id=new_id(), run_id=run.id, placed=now(), **record, **gone))
        stop(session, run, Verdict.RETRY, EndCode.CRASHED, "rank 1 was killed", retry_at=now())
    assert scene.show(work.run_id)["verdict"] == "retry"
    assert pause(scene, work.run_id).json()["verdict"] == "pause"
    assert work.order("running") == "kill", "ranks save together or not at all"
    assert work.ended("stopped") == "paused"
    assert ends(scene, work.run_id) == ["crashed"]
    scene.check_invariants()


def at_once(*calls: Any) -> list[Response]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_concurrent_pause_cancel_and_end_result_in_one_of_them(scene: Scene) -> None:
    order = random.Random(3)
    for _ in range(5):
        work = scene.running()
        calls = [
            partial(pause, scene, work.run_id),
            partial(scene.cancel, work.run_id),
            partial(work.end, order.choice(["crashed", "saved"])),
        ]
        order.shuffle(calls)
        assert all(response.status_code in (200, 202, 409) for response in at_once(*calls))
        work.end("stopped")
        assert (scene.state(work.run_id), scene.used()) == ("cancelled", 0)
        scene.check_invariants()


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_a_concurrent_pause_and_end_leave_the_run_paused(scene: Scene) -> None:
    for _ in range(5):
        work = scene.running()
        responses = at_once(partial(work.end, "saved"), partial(pause, scene, work.run_id))
        assert {response.status_code for response in responses} <= {200, 202}
        assert (scene.state(work.run_id), scene.used()) == ("paused", 0)
        scene.check_invariants()
        scene.cancel(work.run_id)


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_concurrent_pauses_and_resumes_keep_the_quota_consistent(scene: Scene) -> None:
    run_id, _ = in_retry_wait(scene)
    for _ in range(5):
        at_once(*[partial(pause, scene, run_id), partial(resume, scene, run_id)] * 3)
        assert scene.state(run_id) in ("queued", "paused")
        assert scene.used() == 0
        scene.check_invariants()


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_a_concurrent_claim_and_pause_never_leave_a_trainer_of_a_paused_run(scene: Scene) -> None:
    for _ in range(5):
        run_id = scene.submit()
        scene.control.sweep()
        claimed, _ = at_once(partial(scene.agent.try_claim, run_id, "c" * 32), partial(pause, scene, run_id))
        if claimed.status_code == 200:
            work: Work = scene.agent.claim(run_id, "c" * 32)
            assert work.order() == "save"
            assert work.ended("stopped") == "paused"
        assert (scene.state(run_id), scene.used()) == ("paused", 0)
        assert scene.agent.heartbeat() == []
        scene.cancel(run_id)
