"""A run whose loss is not finite goes back to its newest checkpoint and skips the data read since, once in a row."""

from __future__ import annotations

from tests.backend.scripted_agent import Scene, Work
from trainwright.contracts.job_spec import ResumePoint

MESSAGE = "Step 8: the loss was nan. It trained on sequences 3, 1, 2 of the training split."


def _resume(work: Work) -> ResumePoint:
    point = work.claim.job.resume
    assert point is not None
    return point


def _diverged_at_8(scene: Scene) -> Work:
    """The next attempt of a run that saved step 5 and diverged at step 8."""
    work = scene.running(last_step=7)
    work.save(5)
    assert work.ended("diverged", MESSAGE, step=7, sequences_read=64) == "retry_wait"
    return scene.again(work.run_id)


def test_a_run_that_diverged_continues_after_its_last_batch(scene: Scene) -> None:
    work = _diverged_at_8(scene)
    assert (_resume(work).step, _resume(work).sequences_read) == (5, 64)
    messages = [
        event["message"] for event in scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json()
    ]
    assert any(MESSAGE in message for message in messages)
    started = "training from step 5, without the data up to sequence 64 of its order"
    assert any(message.endswith(started) for message in messages)
    assert work.finish(10) == "succeeded"
    scene.check_invariants()


def test_the_data_stays_skipped_if_the_next_attempt_is_lost_before_it_saves(scene: Scene) -> None:
    work = _diverged_at_8(scene)
    assert work.ended("crashed") == "retry_wait"
    again = scene.again(work.run_id)
    assert (_resume(again).step, _resume(again).sequences_read) == (5, 64)


def test_a_checkpoint_after_the_data_needs_no_skip(scene: Scene) -> None:
    """The checkpoint records how far it has read."""
    work = _diverged_at_8(scene)
    work.begin(5)
    work.step(6, 9)
    work.save(9)
    assert work.ended("crashed") == "retry_wait"
    again = scene.again(work.run_id)
    assert (_resume(again).step, _resume(again).sequences_read) == (9, 0)


def test_a_run_that_diverges_twice_in_a_row_fails_and_names_the_batch(scene: Scene) -> None:
    work = _diverged_at_8(scene)
    assert work.ended("diverged", MESSAGE, step=7, sequences_read=88) == "failed"
    shown = scene.show(work.run_id)
    assert shown["reason"] == "diverged"
    assert "sequences 3, 1, 2 of the training split" in shown["sentence"]


def test_a_checkpoint_between_two_divergences_allows_another_return(scene: Scene) -> None:
    work = _diverged_at_8(scene)
    work.begin(5)
    work.step(6, 9)
    work.save(9)
    assert work.ended("diverged", MESSAGE, step=9, sequences_read=104) == "retry_wait"
    assert _resume(scene.again(work.run_id)).sequences_read == 104


def test_without_a_checkpoint_the_run_fails_immediately(scene: Scene) -> None:
    work = scene.running(last_step=7)
    assert work.ended("diverged", MESSAGE, step=7, sequences_read=64) == "failed"


def test_an_older_agent_reports_nothing_to_skip_so_the_run_fails_immediately(scene: Scene) -> None:
    work = scene.running(last_step=7)
    work.save(5)
    assert work.ended("diverged", MESSAGE, step=7) == "failed"
