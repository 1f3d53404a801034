"""A new layout that fails before its first step is rolled back once, to a working one, with an event."""

from typing import Any

import pytest

from tests.backend.scripted_agent import Scene, Work

TENSOR = {
    "model": {"layers": 4},
    "batch": {"micro_sequences": 2, "global_sequences": 8},
    "parallelism": {"tensor": 2},
}
PIPELINE = {"parallelism": {"pipeline": 2}, "micro_sequences": 1}


def change(scene: Scene, run_id: str, layout: dict[str, Any] = PIPELINE) -> None:
    response = scene.site.admin.put(f"{scene.runs}/{run_id}/layout", json=layout)
    assert response.status_code == 200, response.text


def degrees(work: Work) -> tuple[int, int, int]:
    """Pipeline, tensor and micro batch of an attempt."""
    spec = work.claim.job.spec
    return spec.parallelism.pipeline, spec.parallelism.tensor, spec.batch.micro_sequences


def roll_back(scene: Scene, run_id: str) -> list[str]:
    events = scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()
    return [event["message"] for event in events if event["type"] == "layout_rolled_back"]


def tried(scene: Scene, **sections: Any) -> Work:
    """The first attempt in a new layout, of a run that made steps in another layout and saved."""
    work = scene.running(2, 4, **TENSOR | sections)
    work.save(4)
    change(scene, work.run_id)
    assert work.ended("crashed") == "retry_wait"
    again = scene.again(work.run_id)
    assert degrees(again) == (2, 1, 1) and roll_back(scene, work.run_id) == []
    return again


BLAMED = ["bad_job", "out_of_memory", "diverged", "crashed", "start_timeout"]


def test_a_layout_that_ends_before_its_first_step_is_rolled_back_and_the_run_continues(scene: Scene) -> None:
    for code in BLAMED:
        work = tried(scene)
        assert work.order("starting") == "go"
        work.begin(4)
        assert work.ended(code, "deepspeed is not installed.") == "retry_wait"
        sentence = scene.show(work.run_id)["sentence"]
        assert "deepspeed is not installed; continues in another layout" in sentence
        assert roll_back(scene, work.run_id) == [
            "attempt 2 ended before its first step in a new layout (deepspeed is not installed), which was rolled back: "
            "pipeline 2 → tensor 2; micro_sequences 1 → 2. Read the logs of attempt 2, and change the layout again once "
            "the node can run it."
        ]
        third = scene.again(work.run_id)
        assert degrees(third) == (1, 2, 2)
        assert third.claim.job.resume is not None and third.claim.job.resume.step == 4
        assert third.finish(10) == "succeeded"


@pytest.mark.slow(target="databases")
def test_a_layout_that_made_a_step_is_never_rolled_back(scene: Scene) -> None:
    for code in BLAMED:
        work = tried(scene)
        assert work.order("starting") == "go"
        work.begin(4)
        work.step(5, 5)  # the supervisor had no time to report it
        state = work.ended(code)
        assert state == ("retry_wait" if code in ("crashed", "start_timeout") else "failed")
        assert roll_back(scene, work.run_id) == []
        if state == "retry_wait":
            again = scene.again(work.run_id)
            assert degrees(again) == (2, 1, 1)
            assert again.ended("bad_job") == "failed"


@pytest.mark.slow(target="databases")
def test_errors_of_node_disk_or_network_do_not_roll_back_a_layout(scene: Scene) -> None:
    for code in ("fetch_failed", "disk_full", "node_rebooted", "self_fenced", "stopped"):
        work = tried(scene)
        assert work.ended(code) == "retry_wait"
        again = scene.again(work.run_id)
        assert degrees(again) == (2, 1, 1) and roll_back(scene, work.run_id) == []
        assert again.ended("bad_job") == "retry_wait", "no attempt in this layout has made a step yet"
        third = scene.again(work.run_id)
        assert degrees(third) == (1, 2, 2)
        assert third.ended("bad_job") == "failed"


@pytest.mark.slow(target="databases")
def test_losing_two_supervisors_before_the_first_step_rolls_the_layout_back(scene: Scene) -> None:
    work = tried(scene)
    assert work.ended("supervisor_lost") == "retry_wait"
    again = scene.again(work.run_id)
    assert degrees(again) == (2, 1, 1)
    assert again.ended("supervisor_lost") == "retry_wait"
    good = scene.again(work.run_id)
    assert degrees(good) == (1, 2, 2)
    assert good.ended("supervisor_lost") == "retry_wait", "failures of that layout do not count for this one"
    assert scene.again(work.run_id).ended("supervisor_lost") == "failed"


def test_a_run_that_made_no_step_in_any_layout_fails(scene: Scene) -> None:
    work = scene.start(2, **TENSOR)
    change(scene, work.run_id)
    assert work.ended("crashed") == "retry_wait"
    again = scene.again(work.run_id)
    assert degrees(again) == (2, 1, 1)
    assert again.ended("bad_job") == "failed"
    assert roll_back(scene, work.run_id) == []


def test_a_restored_layout_fails_as_usual(scene: Scene) -> None:
    work = tried(scene)
    assert work.ended("bad_job") == "retry_wait"
    third = scene.again(work.run_id)
    assert third.ended("bad_job") == "failed"
    assert len(roll_back(scene, work.run_id)) == 1


@pytest.mark.slow(target="databases")
def test_a_layout_chosen_meanwhile_is_used_first(scene: Scene) -> None:
    work = tried(scene)
    change(scene, work.run_id, {"parallelism": {"zero_stage": 1}, "micro_sequences": 2})
    assert work.ended("bad_job", "no") == "retry_wait"
    [message] = roll_back(scene, work.run_id)
    assert "is not retried: another was chosen in the meantime" in message
    third = scene.again(work.run_id)
    assert third.claim.job.spec.parallelism.zero_stage == 1
    assert third.ended("bad_job", "no") == "retry_wait"
    assert degrees(scene.again(work.run_id)) == (1, 2, 2)


def test_an_attempt_whose_layout_was_rolled_back_is_not_counted(scene: Scene) -> None:
    resources = {"device": "cpu", "slots_per_node": 2, "max_attempts": 3}
    work = tried(scene, resources=resources)  # the first attempt crashed
    assert work.ended("crashed") == "retry_wait"
    third = scene.again(work.run_id)
    assert third.ended("crashed") == "retry_wait", "the second that counts, of three"
    fourth = scene.again(work.run_id)
    assert degrees(fourth) == (1, 2, 2)
    assert fourth.ended("crashed") == "failed"
    assert scene.show(work.run_id)["attempt"] == 4


@pytest.mark.slow(target="databases")
def test_the_same_layout_can_be_chosen_and_rolled_back_again(scene: Scene) -> None:
    work = tried(scene)
    assert work.ended("out_of_memory") == "retry_wait"
    change(scene, work.run_id)
    again = scene.again(work.run_id)
    assert degrees(again) == (2, 1, 1)
    assert again.ended("out_of_memory") == "retry_wait"
    assert len(roll_back(scene, work.run_id)) == 2
    assert degrees(scene.again(work.run_id)) == (1, 2, 2)


def test_a_cancel_takes_precedence_over_a_rollback(scene: Scene) -> None:
    work = tried(scene)
    scene.cancel(work.run_id)
    assert work.ended("bad_job") == "cancelled"
    assert roll_back(scene, work.run_id) == []
