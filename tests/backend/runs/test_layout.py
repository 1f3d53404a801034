"""Changing the layout of a submitted run: by whom, in which states, for which attempt, and what is refused."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import typer
from httpx import Response

from tests.backend.scripted_agent import Scene
from trainwright.commands.plan import changed_layout, show_layout
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.core.ids import parse_id
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.transitions import lock_run, move

TENSOR = {
    "model": {"layers": 4},
    "batch": {"micro_sequences": 2, "global_sequences": 8},
    "parallelism": {"tensor": 2},
}
PIPELINE = {"parallelism": {"pipeline": 2}}


def change(scene: Scene, run_id: str, layout: dict[str, Any] = PIPELINE) -> Response:
    return scene.site.admin.put(f"{scene.runs}/{run_id}/layout", json=layout)


def degrees(scene: Scene, run_id: str) -> tuple[int, int]:
    """Pipeline and tensor of the run's spec."""
    parallelism = scene.show(run_id)["spec"]["parallelism"]
    return parallelism["pipeline"], parallelism["tensor"]


def messages(scene: Scene, run_id: str) -> list[str]:
    events = scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()
    return [event["message"] for event in events if event["type"] == "layout"]


def test_a_waiting_run_is_claimed_in_its_new_layout(scene: Scene) -> None:
    run_id = scene.submit(2, **TENSOR)
    response = change(scene, run_id, PIPELINE | {"micro_sequences": 1})
    assert response.status_code == 200, response.text
    assert response.json()["state"] == "queued"
    assert messages(scene, run_id) == [
        "layout changed by Ada: tensor 2 → pipeline 2; micro_sequences 2 → 1; from the next attempt on"
    ]
    scene.control.sweep()
    job = scene.agent.claim(run_id).claim.job
    assert (job.spec.degrees.pipeline, job.spec.degrees.tensor, job.spec.batch.micro_sequences) == (2, 1, 1)
    assert job.spec.batch.global_sequences == 8 and job.spec.resources.ranks == 2


def test_a_live_run_continues_and_its_next_attempt_has_the_new_layout(scene: Scene) -> None:
    work = scene.running(2, 4, **TENSOR)
    work.save(4)
    claim_id = work.claim.claim_id
    assert change(scene, work.run_id).status_code == 200
    assert scene.agent.claim(work.run_id, claim_id).claim.job == work.claim.job, (
        "a repeated claim gets the same layout"
    )
    assert work.order("running") == "go"
    assert work.ended("crashed") == "retry_wait"
    again = scene.again(work.run_id)
    assert again.claim.job.spec.parallelism.pipeline == 2
    assert again.claim.job.resume is not None and again.claim.job.resume.step == 4
    assert again.finish(10) == "succeeded"


def test_a_run_shows_its_current_and_its_next_layout(scene: Scene) -> None:
    def layouts(run_id: str) -> tuple[Any, ...]:
        """Pipeline and micro batch of the newest attempt, in the run and in the list, and of the next one."""
        shown = scene.show(run_id)
        [listed] = scene.site.admin.get(scene.runs).json()["items"]
        assert listed["attempt_layout"] == shown["attempt_layout"]
        now, spec = shown["attempt_layout"], shown["spec"]
        then = spec["parallelism"]["pipeline"], spec["batch"]["micro_sequences"]
        return now and (now["parallelism"]["pipeline"], now["micro_sequences"]), then

    run_id = scene.submit(2, **TENSOR)
    assert layouts(run_id) == (None, (1, 2))
    scene.control.sweep()
    work = scene.agent.claim(run_id)
    assert change(scene, run_id, PIPELINE | {"micro_sequences": 1}).status_code == 200
    assert layouts(run_id) == ((1, 2), (2, 1))
    assert work.ended("crashed") == "retry_wait"
    assert layouts(run_id) == ((1, 2), (2, 1))
    again = scene.again(run_id)
    assert layouts(run_id) == ((2, 1), (2, 1))
    assert again.finish(10) == "succeeded"
    assert layouts(run_id) == ((2, 1), (2, 1))


def test_the_current_layout_changes_nothing_and_adds_no_event(scene: Scene) -> None:
    run_id = scene.submit(2, **TENSOR)
    assert change(scene, run_id, {"parallelism": {"tensor": 2}}).status_code == 200
    assert messages(scene, run_id) == []


def test_the_event_names_the_differences(scene: Scene) -> None:
    run_id = scene.submit(2, **TENSOR)
    assert change(scene, run_id, {"parallelism": {"zero_stage": 2}}).status_code == 200
    assert (
        change(scene, run_id, {"parallelism": {"pipeline": 2, "stages": [1, 3], "zero_stage": 0}}).status_code
        == 200
    )
    assert messages(scene, run_id) == [
        "layout changed by Ada: tensor 2 → data 2; zero_stage 0 → 2; from the next attempt on",
        "layout changed by Ada: data 2 → pipeline 2; zero_stage 2 → 0; stages even → 1,3; from the next attempt on",
    ]


REFUSED = [
    ({"parallelism": {"tensor": 3}}, "parallelism.tensor", "choose a divisor"),
    ({"parallelism": {"data": 2, "tensor": 2}}, "parallelism.data", "use 1"),
    ({"parallelism": {"pipeline": 2, "stages": [1, 1]}}, "parallelism.stages", "adds up to 2"),
    (PIPELINE | {"micro_sequences": 3}, "batch.global_sequences", "3"),
    ({"parallelism": {"engine": "deepspeed", "tensor": 2}}, "parallelism.engine", "tensor is above 1"),
    ({"parallelism": {"tensr": 2}}, "parallelism.tensr", "Did you mean 'tensor'?"),
    (PIPELINE | {"resources": {"slots_per_node": 4}}, "resources", "There is no key"),
    ({}, "parallelism", "required"),
]


def test_a_layout_that_does_not_fit_is_refused_at_its_field(scene: Scene) -> None:
    run_id = scene.submit(2, **TENSOR)
    for layout, field, hint in REFUSED:
        response = change(scene, run_id, layout)
        assert response.status_code == 422
        [problem] = response.json()["errors"]
        assert problem["field"] == field and hint in problem["message"]
        assert degrees(scene, run_id) == (1, 2) and messages(scene, run_id) == []


def test_the_layout_of_a_run_being_cancelled_cannot_be_changed(scene: Scene) -> None:
    work = scene.running(2, 4, **TENSOR)
    scene.cancel(work.run_id)
    response = change(scene, work.run_id)
    assert (response.status_code, response.json()["code"]) == (409, "run_is_stopping")


def test_the_layout_can_be_changed_only_if_an_attempt_is_left(scene: Scene) -> None:
    run_id = scene.submit(2, **TENSOR)
    layouts = [PIPELINE, {"parallelism": {"tensor": 2}}]
    for state in RunState:
        put_into(scene, run_id, state)
        before, response = degrees(scene, run_id), change(scene, run_id, layouts[0])
        if state in FINAL or state is RunState.COMPLETING:
            assert response.status_code == 409
            assert response.json()["code"] == ("run_is_final" if state in FINAL else "run_is_completing")
            assert degrees(scene, run_id) == before
        else:
            assert response.status_code == 200
            assert degrees(scene, run_id) != before
            layouts.reverse()
    put_into(scene, run_id, RunState.QUEUED)


@pytest.mark.parametrize("rest", ["paused", "retry_wait", "queued"])
def test_the_layout_cannot_be_changed_once_the_last_step_is_saved(scene: Scene, rest: str) -> None:
    work = scene.running(2, 10, **TENSOR)
    if rest != "retry_wait":
        assert scene.site.admin.post(f"{scene.runs}/{work.run_id}/pause").status_code == 202
    work.save(10)
    assert work.ended("crashed" if rest == "retry_wait" else "saved", step=10) != "failed"
    if rest == "queued":
        assert scene.site.admin.post(f"{scene.runs}/{work.run_id}/resume").status_code == 202
    assert scene.state(work.run_id) == rest
    response = change(scene, work.run_id)
    assert (response.status_code, response.json()["code"]) == (409, "run_is_trained")
    assert "clone it" in response.json()["detail"]
    assert degrees(scene, work.run_id) == (1, 2) and messages(scene, work.run_id) == []


def test_the_layout_of_a_run_paused_before_its_last_step_can_be_changed(scene: Scene) -> None:
    work = scene.running(2, 9, **TENSOR)
    assert scene.site.admin.post(f"{scene.runs}/{work.run_id}/pause").status_code == 202
    work.save(9)
    assert work.ended("saved", step=9) == "paused"
    assert change(scene, work.run_id).status_code == 200


def put_into(scene: Scene, run_id: str, state: RunState) -> None:
    with scene.database.write() as session:
        session.get_one(Run, parse_id("run", run_id)).state = state


def test_viewers_cannot_and_another_team_does_not_see_the_run(scene: Scene) -> None:
    run_id = scene.submit(2, **TENSOR)
    path = f"{scene.runs}/{run_id}/layout"
    assert scene.site.member("viewer").put(path, json=PIPELINE).status_code == 403
    stranger = scene.site.other_team("globex")
    assert stranger.put(path.replace("acme", "globex"), json=PIPELINE).status_code == 404
    assert degrees(scene, run_id) == (1, 2)


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_a_concurrent_claim_gets_the_layout_recorded_in_the_events(scene: Scene) -> None:
    for _ in range(6):
        run_id = scene.submit(2, **TENSOR)
        scene.control.sweep()
        with ThreadPoolExecutor(2) as pool:
            claiming = pool.submit(scene.agent.claim, run_id)
            changing = pool.submit(change, scene, run_id)
        assert changing.result().status_code == 200
        events = scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()
        order = [event["type"] if event["type"] == "layout" else event["state"] for event in events]
        first = order.index("layout") < order.index("leased")
        assert claiming.result().claim.job.spec.parallelism.pipeline == (2 if first else 1)
        assert degrees(scene, run_id) == (2, 1)
        end(scene, run_id)


def end(scene: Scene, run_id: str) -> None:
    """Free the slots for the next one."""
    with scene.database.write() as session:
        run = lock_run(session, parse_id("run", run_id))
        assert run is not None
        for state in (RunState.RUNNING, RunState.COMPLETING, RunState.SUCCEEDED):
            move(session, run, state, "over")


def test_the_command_starts_from_the_current_layout(capsys: pytest.CaptureFixture[str]) -> None:
    spec = RunSpec.model_validate(
        TENSOR | {"name": "pilot", "data": {"dataset": "ds_x"}, "resources": {"slots_per_node": 4}}
    )
    layout = changed_layout(spec, ["parallelism.pipeline=2", "batch.micro_sequences=1"])
    assert (layout.parallelism.tensor, layout.parallelism.pipeline, layout.micro_sequences) == (2, 2, 1)
    assert show_layout(spec).startswith("4 ranks = pipeline 1 × data 2 × tensor 2, 2 sequences")
    with pytest.raises(typer.Exit):
        changed_layout(spec, ["schedule.steps=5"])
    assert "can be changed here" in capsys.readouterr().err
