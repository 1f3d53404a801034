"""The protocol between API, agents and supervisors, as described in lifecycle.md."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from tests.backend.scripted_agent import Agent, Scene, Upload, Work, losses
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.core.db import now
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Placement

LEASE_SECONDS = 6


def in_queued(scene: Scene) -> tuple[str, Work | None]:
    return scene.submit(), None


def in_placed(scene: Scene) -> tuple[str, Work | None]:
    run_id = scene.submit()
    scene.control.sweep()
    return run_id, None


def in_starting(scene: Scene) -> tuple[str, Work | None]:
    work = scene.start()
    return work.run_id, work


def in_running(scene: Scene) -> tuple[str, Work | None]:
    work = scene.running()
    return work.run_id, work


def in_completing(scene: Scene) -> tuple[str, Work | None]:
    work = scene.running(last_step=10)
    work.order("completing")
    return work.run_id, work


def in_retry_wait(scene: Scene) -> tuple[str, Work | None]:
    work = scene.running()
    assert work.ended("crashed") == "retry_wait"
    return work.run_id, None


STATES: list[Callable[[Scene], tuple[str, Work | None]]] = [
    in_queued,
    in_placed,
    in_starting,
    in_running,
    in_completing,
    in_retry_wait,
]


def test_cancel_moves_the_run_or_refuses_in_every_state(scene: Scene) -> None:
    for arrange in STATES:
        run_id, work = arrange(scene)
        response = scene.cancel(run_id)
        assert response.status_code == 202, arrange.__name__
        if work is None:
            assert response.json()["state"] == "cancelled", arrange.__name__
        else:
            assert (response.json()["state"], response.json()["verdict"]) == ("stopping", "cancel")
            assert response.json()["sentence"] == "Cancelled by Ada"
            assert work.order("running") == "kill"
            assert work.order("ended", exit={"code": "stopped", "message": "as requested"}) == "leave"
            assert work.order("ended") == "leave"
            assert work.ended("stopped") == "cancelled", (
                "the agent may report what the supervisor has written"
            )
        shown = scene.show(run_id)
        assert (shown["state"], shown["reason"], shown["nodes"]) == ("cancelled", "cancelled", [])
        assert scene.used() == 0
        assert (scene.cancel(run_id).status_code, scene.show(run_id)) == (202, shown), "repeating is harmless"
        scene.check_invariants()
    assert scene.agent.heartbeat() == []


def test_a_final_run_does_not_change(scene: Scene) -> None:
    work = scene.start()
    assert work.finish(10) == "succeeded"
    late = Upload.make(11)
    assert work.order("running") == "leave"
    assert work.ended("crashed") == "succeeded", "a repeated end returns what was accepted"
    assert work.end("crashed").json()["code"] == "finished"
    assert work.announce(late).json()["code"] == "stale_fence"
    assert work.commit(late).json()["code"] == "stale_fence"
    assert scene.agent.try_claim(work.run_id).json()["code"] == "claim_refused"
    assert work.log(b"late words").status_code == 200, (
        "events and logs are accepted while the fence is the newest"
    )
    scene.control.let_pass(2 * LEASE_SECONDS)
    assert scene.state(work.run_id) == "succeeded"
    assert RunState(scene.state(work.run_id)) in FINAL


@pytest.mark.both_databases
def test_a_repeated_claim_gets_the_same_response_and_another_is_refused(scene: Scene) -> None:
    run_id = scene.submit()
    scene.control.sweep()
    first = scene.agent.claim(run_id, "c" * 32)
    again = scene.agent.claim(run_id, "c" * 32)
    assert again.claim.model_copy(update={"downloads": []}) == first.claim.model_copy(
        update={"downloads": []}
    )
    assert [f.object_key for f in again.claim.downloads] == [f.object_key for f in first.claim.downloads]
    assert scene.agent.try_claim(run_id, "d" * 32).json()["code"] == "claim_refused"
    scene.cancel(run_id)
    assert scene.agent.claim(run_id, "c" * 32).claim.fence == first.claim.fence, "in stopping too"
    other = Agent.join(scene.site, "node-b")
    assert other.try_claim(run_id, "c" * 32).json()["code"] == "claim_refused"
    unknown = other.try_claim("run_" + "a" * 26)
    assert unknown.status_code == 409, "a node cannot distinguish other runs from ones that do not exist"
    assert unknown.json()["detail"] == other.try_claim(run_id).json()["detail"]


@pytest.mark.parametrize("end", ["reported", "expired"])
def test_a_claim_of_an_ended_attempt_gets_no_new_links(scene: Scene, end: str) -> None:
    work = scene.running()
    claim_id = work.claim.claim_id
    assert scene.agent.try_claim(work.run_id, claim_id).json()["downloads"], (
        "a live attempt can request them again"
    )
    if end == "reported":
        assert work.finish(10) == "succeeded"
    else:
        scene.control.let_pass(2 * LEASE_SECONDS)
    response = scene.agent.try_claim(work.run_id, claim_id)
    assert (response.status_code, response.json()["code"]) == (409, "claim_refused")
    assert "downloads" not in response.json()


def test_a_run_is_unknown_to_nodes_that_never_claimed_it(scene: Scene) -> None:
    work = scene.running()
    stranger = Work(Agent.join(scene.site, "node-b"), work.run_id, work.claim, offset=work.offset)
    for response in (
        stranger.renew("running"),
        stranger.send(stranger.batch(metrics=[losses(4, 4)])),
        stranger.log(b"not mine"),
        stranger.announce(Upload.make(3)),
        stranger.end("finished"),
        stranger.agent.client.get(f"/api/v1/agent/runs/{work.run_id}/offsets?attempt=1"),
    ):
        assert response.status_code == 404, response.text
    assert scene.site.admin.get("/api/v1/agent/runs/x/offsets?attempt=1").status_code == 401


def test_the_first_go_answers_a_renewal_and_phases_advance_the_state(scene: Scene) -> None:
    work = scene.start()
    assert scene.state(work.run_id) == "starting"
    assert work.order("starting", progress="fetching shards 3 of 8") == "go"
    assert scene.show(work.run_id)["sentence"] == "fetching shards 3 of 8"
    work.begin()
    assert work.order("completing") == "go"
    assert work.order("starting") == "go", "a renewal with an earlier phase changes nothing"
    moves = [
        e["state"] for e in scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json() if e["state"]
    ]
    assert moves == ["queued", "leased", "starting", "running", "completing"]


def test_an_expired_lease_requeues_the_run_and_its_old_attempt_is_refused_everywhere(scene: Scene) -> None:
    zombie = scene.running()
    saved = zombie.save(3)
    scene.control.sweep()
    scene.control.let_pass(LEASE_SECONDS)
    # If the two sweeps are slow, the back-off may be over already, so read the events.
    events = scene.site.admin.get(f"{scene.runs}/{zombie.run_id}/events").json()
    (lapsed,) = (event for event in events if event["state"] == "retry_wait")
    assert lapsed["message"] == "node-a was silent for 6 s"
    work = scene.again(zombie.run_id)
    assert (work.claim.fence, work.claim.attempt) == (2, 2)
    assert work.claim.job.resume is not None
    assert (work.claim.job.resume.step, work.claim.job.resume.digest) == (3, saved.digest)
    next_one = Upload.make(4)
    for response in (
        zombie.renew("running"),
        zombie.send(zombie.batch(metrics=[losses(4, 4)])),
        zombie.log(b"I am alive"),
        zombie.announce(next_one),
        zombie.commit(next_one),
        zombie.end("finished"),
    ):
        assert (response.status_code, response.json()["code"]) == (409, "stale_fence"), response.text
    assert scene.state(work.run_id) == "starting"
    assert work.finish(10) == "succeeded"


def back_off_longer(scene: Scene) -> None:
    """Wait a minute before the next attempt, which a slow machine does not reach by itself."""
    state = scene.site.app.state
    longer = {"backoff_seconds": 60.0, "backoff_limit_seconds": 900.0}
    timers = state.settings.timers.model_copy(update=longer)
    state.settings = state.settings.model_copy(update={"timers": timers})


def test_renewals_extend_a_lease_and_a_late_loop_expires_none(scene: Scene) -> None:
    back_off_longer(scene)
    work = scene.running()
    for _ in range(3 * LEASE_SECONDS):
        scene.control.let_pass(0)
        assert work.order("running") == "go"
    scene.control.clock.seconds += 100 * LEASE_SECONDS  # the loop itself was not running
    scene.control.sweep()
    assert scene.state(work.run_id) == "running"
    scene.control.let_pass(LEASE_SECONDS)
    assert scene.state(work.run_id) == "retry_wait"


def test_a_shorter_lease_applies_to_the_next_claim(scene: Scene) -> None:
    """The reply with the new lease may be lost; until one arrives, the supervisor uses the longer lease."""
    work = scene.running()
    app = scene.site.app
    shorter = app.state.settings.timers.model_copy(update={"lease_seconds": LEASE_SECONDS / 2})
    app.state.settings = app.state.settings.model_copy(update={"timers": shorter})
    assert work.order("running") == "go"
    scene.control.let_pass(LEASE_SECONDS / 2 + 1)
    assert scene.state(work.run_id) == "running"
    scene.control.let_pass(LEASE_SECONDS / 2)
    assert scene.state(work.run_id) in ("retry_wait", "queued"), "a slow machine may be past the back-off"


@pytest.mark.both_databases
def test_any_text_of_a_trainer_is_stored(scene: Scene) -> None:
    odd = "rank\0 1 \ud800 died"
    work = scene.running()
    assert work.renew("running", progress="a\0b").status_code == 200
    started = {"type": "attempt_started", "attempt": 1, "resume_step": 0, "ranks": 2, "parameters": 7}
    started |= {"device": "a\0 CPU", "peak_name": "a\0 peak", "bf16_peak_name": "\0"}
    events = [{"type": "note", "message": odd}, {"type": "new\0er", "message": "\0"}, started]
    series = {"steps": [4], "series": {"lo\0ss": [1.0]}}
    body = json.dumps(work.batch(events, [series]))
    stored = work.agent.client.post(
        f"/api/v1/agent/runs/{work.run_id}/batches",
        content=body,
        headers={"Content-Type": "application/json"},
    )
    assert stored.status_code == 200, stored.text
    work.offset = stored.json()["offset"]
    assert work.ended("crashed", "rank\0 1 died") == "retry_wait"
    assert scene.show(work.run_id)["sentence"] == "rank 1 died."


def test_an_end_applies_to_its_own_claim(scene: Scene) -> None:
    """A node with the run's newest placement cannot end it by its earlier claim."""
    old = scene.running()
    scene.control.let_pass(LEASE_SECONDS + 1)
    new = scene.again(old.run_id)
    mixed = old.end("crashed", fence=new.claim.fence, offsets={})
    assert (mixed.status_code, mixed.json().get("code")) == (409, "stale_fence")
    assert scene.state(new.run_id) == "starting"


def test_a_run_is_suspect_before_its_lease_expires(scene: Scene) -> None:
    work = scene.running()

    def show_renewed(seconds: float) -> Any:
        with scene.database.write() as session:
            session.execute(update(Placement).values(renewed=now() + timedelta(seconds=seconds)))
        return scene.show(work.run_id)

    assert show_renewed(60)["suspect_seconds"] is None, "however long the request takes on a busy machine"
    shown = show_renewed(-4)
    assert shown["state"] == "running"
    assert 4 <= shown["suspect_seconds"] < LEASE_SECONDS


def test_an_end_waits_for_shipped_data_and_counts_once(scene: Scene) -> None:
    work = scene.running(last_step=10)
    short = work.end("crashed", offsets={"events.jsonl": work.offset + 1})
    assert (short.status_code, short.json()["code"], short.json()["file"]) == (
        409,
        "file_short",
        "events.jsonl",
    )
    assert short.json()["offset"] == work.offset
    work.order("completing")
    assert work.end("finished").json()["code"] == "not_exported"
    work.save(10)
    work.save(10, "export")
    assert work.order("ended") == "wait", "the supervisor continues until the end is accepted"
    first, again = work.end("finished"), work.end("finished")
    assert first.json() == again.json() == {"state": "succeeded", "code": "finished"}
    assert scene.used() == 0


def test_a_supervisor_that_ended_does_not_wait_for_a_dead_agent(scene: Scene) -> None:
    work = scene.running()
    assert work.order("ended", exit={"code": "crashed", "message": "rank 1 was killed"}) == "wait"
    with scene.database.write() as session:
        session.execute(update(Node).values(last_heartbeat=now() - timedelta(minutes=5)))
    assert work.order("ended") == "leave", "no one will report the end"
    scene.control.let_pass(LEASE_SECONDS)
    assert scene.show(work.run_id)["reason"] == "lease_expired"


@pytest.mark.parametrize(
    ("code", "tries", "reason", "counted_as"),
    [
        ("diverged", 1, "diverged", "diverged"),
        ("supervisor_lost", 2, "poison", "supervisor_lost"),
        ("crashed", 3, "crashed", "crashed"),
        ("stopped", 3, "crashed", "crashed"),
        ("saved", 3, "crashed", "crashed"),
        ("self_fenced", 10, "unreachable", "self_fenced"),
    ],
)
def test_ends_without_progress_are_bounded(
    scene: Scene, code: str, tries: int, reason: str, counted_as: str
) -> None:
    work = scene.start()
    for _ in range(tries - 1):
        assert work.ended(code) == "retry_wait"
        work = scene.again(work.run_id)
    assert work.ended(code, "rank 1 went away") == "failed"
    shown = scene.show(work.run_id)
    assert (shown["reason"], shown["attempt"]) == (reason, tries)
    assert "rank 1 went away. " in shown["sentence"]
    marks = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics").json()["attempts"]
    assert [mark["reason"] for mark in marks] == [counted_as] * tries


def test_a_damaged_checkpoint_does_not_recount_earlier_ends(scene: Scene) -> None:
    work = scene.running(last_step=10)
    work.save(5)
    work.ended("crashed")
    work = scene.again(work.run_id)
    work.begin(5)
    work.step(6, 10)
    work.save(8)
    work.ended("crashed")
    work = scene.again(work.run_id)
    assert work.ended("checkpoint_invalid", step=8) == "retry_wait", "one crash and one damage since step 8"
    work = scene.again(work.run_id)
    assert work.claim.job.resume is not None
    assert work.claim.job.resume.step == 5
    assert work.ended("checkpoint_invalid", step=5) == "failed"
    shown = scene.show(work.run_id)
    assert shown["reason"] == "checkpoint_invalid"
    assert shown["sentence"].startswith("Its checkpoints were damaged repeatedly."), "nothing is used"


def test_progress_resets_the_backoff_which_otherwise_doubles(scene: Scene) -> None:
    back_off_longer(scene)
    work = scene.running(last_step=2)
    assert wait_after_crash(scene, work) == pytest.approx(60, abs=20)
    work = scene.again(work.run_id)
    work.begin()
    work.step(1, 3)
    work.save(3)
    assert wait_after_crash(scene, work) == pytest.approx(60, abs=20), (
        "attempts before the checkpoint's no longer count"
    )
    work = scene.again(work.run_id)
    assert wait_after_crash(scene, work) == pytest.approx(120, abs=20), "the checkpoint's own attempt counts"
    work = scene.again(work.run_id)
    assert work.ended("crashed") == "failed"


def wait_after_crash(scene: Scene, work: Work) -> float:
    """Seconds from the attempt's end to the next try."""
    assert work.ended("crashed") == "retry_wait"
    shown = scene.show(work.run_id)
    marks = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics").json()["attempts"]
    waited = datetime.fromisoformat(shown["retry_at"]) - datetime.fromisoformat(marks[-1]["ended"])
    return waited.total_seconds()


def test_max_attempts_ends_the_run(scene: Scene) -> None:
    work = scene.start(resources={"device": "cpu", "max_attempts": 1})
    assert work.ended("lease_expired") == "failed"
    assert scene.show(work.run_id)["reason"] == "too_many_attempts"


@pytest.mark.parametrize(
    ("saves", "limit"),
    [(False, ""), (True, " The attempt limit, resources.max_attempts, was reached.")],
)
def test_a_run_that_diverged_for_the_last_time_says_what_to_change(
    scene: Scene, saves: bool, limit: str
) -> None:
    work = scene.running(last_step=5, resources={"device": "cpu", "max_attempts": 1})
    if saves:
        work.save(5)
    assert work.ended("diverged", message="the loss was nan", step=5, sequences_read=96) == "failed"
    assert scene.show(work.run_id)["sentence"] == (
        f"the loss was nan. Lower optimizer.learning_rate or lengthen the warm-up.{limit}"
    )


def test_a_trained_run_is_only_exported_again(scene: Scene) -> None:
    work = scene.running(last_step=10)
    work.save(5)
    work.save(10)
    work.order("completing")
    assert work.ended("export_failed") == "retry_wait"
    work = scene.again(work.run_id)
    assert work.claim.job.kind == "export"
    assert {f.path.split("/")[0] for f in work.claim.downloads} == {"data", "resume"}
    assert {f.path for f in work.claim.downloads if f.path.startswith("data/")} == {
        "data/manifest.json",
        "data/tokenizer.json",
    }
    assert work.order("completing") == "go"
    assert work.ended("checkpoint_invalid", step=10) == "retry_wait"
    work = scene.again(work.run_id)
    assert work.claim.job.resume is not None
    assert (work.claim.job.kind, work.claim.job.resume.step) == ("train", 5), "the previous one is used"
    assert work.finish(10) == "succeeded"


@pytest.mark.both_databases
def test_unclaimed_placements_expire_and_are_placed_again(scene: Scene) -> None:
    run_id = scene.submit()
    scene.control.sweep()
    assert scene.agent.heartbeat()[0]["claimed"] is False
    with scene.database.write() as session:
        session.execute(update(Placement).values(placed=now() - timedelta(seconds=60)))
    other = Agent.join(scene.site, "node-b", cpu_slots=1)
    assert scene.agent.heartbeat(busy_slots={"cpu": [0, 1]}) != []
    scene.control.sweep()
    assert scene.agent.heartbeat(busy_slots={"cpu": [0, 1]}) == []
    assert [placed["run_id"] for placed in other.heartbeat()] == [run_id]
    assert scene.show(run_id)["attempt"] == 0, "no attempt is counted"
    assert scene.agent.try_claim(run_id).json()["code"] == "claim_refused"


def test_runs_are_placed_with_all_slots_in_order_and_show_why_they_wait(scene: Scene) -> None:
    running = scene.running(slots=1)
    large, small = scene.submit(slots=2), scene.submit(slots=1)
    scene.control.sweep()
    assert scene.show(large)["sentence"] == "needs 2 slots, 1 free on 1 node"
    assert scene.show(small)["sentence"] == "needs 1 slot, 1 free on 1 node; 2nd in line, behind pilot"
    tiny = Agent.join(scene.site, "node-b", cpu_slots=1)
    scene.control.sweep()
    assert [placed["run_id"] for placed in tiny.heartbeat()] == [small], (
        "a node too small for the first is open"
    )
    assert running.ended("diverged") == "failed"
    scene.agent.heartbeat(busy_slots={"cpu": [1]})
    scene.control.sweep()
    assert scene.state(large) == "queued"
    assert scene.show(large)["nodes"] == [], "a slot with a marked process is not free"
    scene.agent.heartbeat(busy_slots={})
    scene.control.sweep()
    assert [(placed["run_id"], placed["slots"]) for placed in scene.agent.heartbeat()] == [(large, [0, 1])]


def test_a_failed_preparation_fails_the_run(scene: Scene) -> None:
    spec = scene.spec(
        data={"dataset": scene.dataset, "tokenizer": {"kind": "bytes"}, "validation_fraction": 0.2}
    )
    run_id = scene.site.admin.post(scene.runs, json=spec).json()["id"]
    scene.control.sweep()
    assert scene.show(run_id)["sentence"] == "preparing its data"
    with scene.database.write() as session:
        unready = update(Preparation).where(Preparation.validation_fraction == 0.2)
        session.execute(unready.values(state="failed", error="Line 3 is no JSON."))
    scene.control.sweep()
    shown = scene.show(run_id)
    assert (shown["state"], shown["reason"]) == ("failed", "data")
    assert shown["sentence"].startswith("Line 3 is no JSON. The dataset could not be prepared.")
    assert scene.used() == 0


def test_data_that_turns_out_shorter_than_one_sequence_fails_the_run(scene: Scene) -> None:
    data = {"dataset": scene.dataset, "tokenizer": {"kind": "bytes"}, "validation_fraction": 0.2}
    batch = {"sequence_tokens": 65_536, "micro_sequences": 1, "global_sequences": 1}
    run_id = scene.submit(data=data, batch=batch)
    scene.site.prepare()
    scene.control.sweep()
    shown = scene.show(run_id)
    assert (shown["state"], shown["reason"]) == ("failed", "data")
    assert "one sequence of 65,536 needs 65,537" in shown["sentence"]
    assert scene.used() == 0 and scene.agent.heartbeat() == []


def test_only_ended_runs_can_be_deleted_with_their_data(scene: Scene) -> None:
    work = scene.running()
    work.save(3)
    store = scene.site.app.state.store
    assert scene.site.admin.delete(f"{scene.runs}/{work.run_id}").json()["code"] == "run_not_final"
    dataset = scene.site.admin.delete(f"{scene.site.path}/datasets/{scene.dataset}")
    assert (dataset.status_code, dataset.json()["runs"]) == (409, ["pilot"])
    assert scene.site.admin.delete(f"/api/v1/nodes/{node_id(scene)}").json()["code"] == "node_in_use"
    assert work.finish(10) == "succeeded"
    team = next(path.name for path in store.root.iterdir() if (path / "runs").is_dir())
    assert store.list_prefix(f"{team}/runs")
    assert scene.site.admin.delete(f"{scene.runs}/{work.run_id}").status_code == 200
    assert scene.site.admin.get(f"{scene.runs}/{work.run_id}").status_code == 404
    scene.control.sweep()
    assert store.list_prefix(f"{team}/runs") == []
    for response in (work.renew("running"), work.end("finished"), work.log(b"late")):
        assert response.status_code == 404
    assert scene.site.admin.delete(f"/api/v1/nodes/{node_id(scene)}").status_code == 204
    assert scene.agent.client.post("/api/v1/agent/heartbeat", json={}).status_code == 401


def node_id(scene: Scene) -> str:
    nodes = scene.site.admin.get("/api/v1/nodes").json()
    return str(nodes[0]["id"])
