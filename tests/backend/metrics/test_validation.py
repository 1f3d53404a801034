"""Checkpoints show the loss of the last validation at or before their step, and can be listed run by run."""

from typing import Any

import pytest

from tests.backend.scripted_agent import Scene, Work
from trainwright_backend.metrics.tables import MetricChunk

KEPT = {"every_steps": 1, "keep": 50}


def validate(work: Work, *steps: int, scale: float = 1.0) -> None:
    values = {"validation_loss": [scale / step for step in steps]}
    assert work.send(work.batch(metrics=[{"steps": list(steps), "series": values}])).status_code == 200


def shown(scene: Scene, work: Work) -> dict[int, tuple[float | None, int | None]]:
    found = scene.site.admin.get(f"{scene.runs}/{work.run_id}/checkpoints?limit=100").json()["items"]
    return {item["step"]: (item["validation_loss"], item["validation_step"]) for item in found}


def of_team(scene: Scene, **asked: Any) -> Any:
    return scene.site.admin.get(f"{scene.site.path}/checkpoints", params=asked)


def test_the_last_validation_at_or_before_a_step_counts(scene: Scene) -> None:
    work = scene.running(checkpoint=KEPT, steps=100)
    work.step(4, 20)
    work.save(3)
    assert shown(scene, work) == {3: (None, None)}
    validate(work, 5, 10)
    for step in (4, 5, 9, 20):
        work.save(step)
    before = {3: (None, None), 4: (None, None), 5: (1 / 5, 5), 9: (1 / 5, 5), 20: (1 / 10, 10)}
    assert shown(scene, work) == before
    validate(work, 15)
    assert shown(scene, work)[20] == (1 / 15, 15), "it may arrive after the commit"


def test_it_is_found_in_any_chunk(scene: Scene) -> None:
    work = scene.running(checkpoint=KEPT, steps=5_000)
    work.step(4, 4_000)
    validate(work, *range(2, 1_500, 2))
    validate(work, *range(1_500, 3_501, 2))
    with scene.database.read() as session:
        assert session.query(MetricChunk).count() > 6
    for step in (3, 1_499, 1_500, 3_000, 4_000):
        work.save(step)
    assert {step: at for step, (_, at) in shown(scene, work).items()} == {
        3: 2,
        1_499: 1_498,
        1_500: 1_500,
        3_000: 3_000,
        4_000: 3_500,
    }


def test_a_later_attempt_does_not_validate_the_weights_of_an_earlier_one(scene: Scene) -> None:
    work = scene.running(last_step=20, checkpoint=KEPT, steps=100)
    validate(work, 10)
    work.save(10)
    work.save(20)
    work.ended("crashed")
    scene.end_backoff(work.run_id)
    scene.control.sweep()
    work = scene.agent.claim(work.run_id)
    work.begin(resume_step=12)
    work.step(13, 22)
    validate(work, 15, 20, scale=3.0)
    work.save(21)
    assert shown(scene, work) == {10: (1 / 10, 10), 20: (1 / 10, 10), 21: (3 / 20, 20)}


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_the_teams_list_can_be_ordered_by_run(scene: Scene, limit: int) -> None:
    first = scene.running(checkpoint=KEPT)
    second = scene.running(checkpoint=KEPT)
    for step in (1, 2, 3):
        first.save(step)
        second.save(step)
    validate(first, 2)
    found: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = of_team(scene, order="run", limit=limit, **cursor).json()
        found += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    runs = [first.run_id, second.run_id]
    names = [(runs.index(item["run"]), item["step"], item["validation_step"]) for item in found]
    assert names == [(1, 3, None), (1, 2, None), (1, 1, None), (0, 3, 2), (0, 2, 2), (0, 1, None)]
    newest = of_team(scene, limit=100).json()["items"]
    assert [(item["run"], item["step"]) for item in newest] == [
        (run, step) for step in (3, 2, 1) for run in reversed(runs)
    ]


@pytest.mark.parametrize("cursor", ["ckpt_a", "x", "run_a.1.ckpt_b", "..", "run_a.²."])
def test_a_cursor_of_another_order_is_refused(scene: Scene, cursor: str) -> None:
    refused = of_team(scene, order="run", cursor=cursor)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "cursor")
    work = scene.running()
    work.save(1)
    work.save(2)
    by_run = of_team(scene, order="run", limit=1).json()["next_cursor"]
    assert of_team(scene, cursor=by_run).status_code == 422


def test_a_dry_run_of_retention_includes_the_losses(scene: Scene) -> None:
    work = scene.running(checkpoint=KEPT)
    validate(work, 2)
    work.save(2)
    reply = scene.site.admin.post(f"{scene.site.path}/checkpoints/retention", json={"keep_last": 1}).json()
    assert [entry["checkpoint"]["validation_loss"] for entry in reply["checkpoints"]] == [1 / 2]
    saved = reply["checkpoints"][0]["checkpoint"]
    path = f"{scene.runs}/{work.run_id}/checkpoints/{saved['id']}"
    assert scene.site.admin.patch(path, json={"pinned": True}).json() == {**saved, "pinned": True}
