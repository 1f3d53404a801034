"""Samples are stored per step and within limits, and are removed when a run resumes from an earlier step."""

from typing import Any

import pytest

from tests.backend.scripted_agent import Scene, Work
from trainwright.contracts.events import MAX_SAMPLE_LENGTH
from trainwright.contracts.training_spec import MAX_PROMPT_LENGTH, MAX_PROMPTS
from trainwright_backend.metrics import samples


def write(work: Work, *steps: int, text: str = "runs", prompts: int = 1) -> None:
    events = [
        {
            "type": "samples",
            "step": step,
            "samples": [{"prompt": "a dog", "text": f"{text} {step}"}] * prompts,
        }
        for step in steps
    ]
    assert work.send(work.batch(events)).status_code == 200


def shown(scene: Scene, work: Work, **asked: Any) -> Any:
    response = scene.site.admin.get(f"{scene.runs}/{work.run_id}/samples", params=asked)
    assert response.status_code == 200, response.text
    return response.json()


def steps_of(page: Any) -> list[int]:
    return [item["step"] for item in page["items"]]


def test_samples_are_listed_newest_first_in_pages(scene: Scene) -> None:
    work = scene.running(steps=100)
    write(work, 10, 20, 30)
    first = shown(scene, work, limit=2)
    assert steps_of(first) == [30, 20]
    assert first["items"][0]["samples"] == [{"prompt": "a dog", "text": "runs 30"}]
    rest = shown(scene, work, limit=2, cursor=first["next_cursor"])
    assert (steps_of(rest), rest["next_cursor"]) == ([10], None)


def test_samples_do_not_appear_among_the_events(scene: Scene) -> None:
    work = scene.running(steps=100)
    write(work, 10)
    events = scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json()
    assert "samples" not in {event["type"] for event in events}


def test_a_later_attempt_removes_samples_after_its_resume_point(scene: Scene) -> None:
    work = scene.running(last_step=20, steps=100)
    write(work, 10, 20)
    work.ended("crashed")
    scene.end_backoff(work.run_id)
    scene.control.sweep()
    work = scene.agent.claim(work.run_id)
    work.begin(resume_step=12)
    assert steps_of(shown(scene, work)) == [10]
    write(work, 20, text="jumps")
    assert [item["samples"][0]["text"] for item in shown(scene, work)["items"]] == ["jumps 20", "runs 10"]


def test_a_node_cannot_store_more_than_a_trainer_writes(scene: Scene) -> None:
    work = scene.running(steps=100)
    long = {"prompt": "a" * 9_000, "text": "b\0" * 9_000}
    event = {"type": "samples", "step": 5, "samples": [long] * 100}
    assert work.send(work.batch([event, event | {"step": 2**60}, event | {"step": -1}])).status_code == 200
    (item,) = shown(scene, work)["items"]
    assert (
        item["samples"]
        == [{"prompt": "a" * MAX_PROMPT_LENGTH, "text": "b" * MAX_SAMPLE_LENGTH}] * MAX_PROMPTS
    )


def test_many_validations_are_thinned_evenly(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MAX_KEPT", 6)
    work = scene.running(steps=100)
    write(work, *range(1, 9))
    assert steps_of(shown(scene, work)) == [8, 7, 5, 3, 1]


def test_a_wrong_cursor_is_refused(scene: Scene) -> None:
    work = scene.running(steps=100)
    for cursor in ("x", str(2**70)):
        response = scene.site.admin.get(f"{scene.runs}/{work.run_id}/samples", params={"cursor": cursor})
        assert response.status_code == 422
