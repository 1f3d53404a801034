"""The plan of a layout before its submission, through HTTP, the client and the command line."""

from typing import Any

import pytest

from tests.backend.runs.test_submission import WRONG
from tests.backend.scripted_agent import Agent, Scene
from trainwright.commands.plan import show
from trainwright.contracts.api.plans import RunPlan
from trainwright.sizes import format_bytes


def piped(scene: Scene, **parallelism: Any) -> dict[str, Any]:
    return scene.spec(
        model={"layers": 4},
        batch={"micro_sequences": 1, "global_sequences": 8},
        resources={"device": "cpu", "slots_per_node": 2},
        parallelism={"pipeline": 2} | parallelism,
    )


def test_a_plan_has_positions_stages_memory_and_schedule(scene: Scene) -> None:
    response = scene.site.admin.post(f"{scene.runs}/plan", json=piped(scene))
    assert response.status_code == 200, response.text
    plan = response.json()
    assert [plan[axis] for axis in ("pipeline", "data", "tensor", "micro_batches")] == [2, 1, 1, 8]
    assert [(stage["rank"], stage["first_layer"], stage["layers"]) for stage in plan["stages"]] == [
        (0, 0, 2),
        (1, 2, 2),
    ]
    assert [memory["total"] > memory["weights"] > 0 for memory in plan["memory"]] == [True, True]
    assert [cell["kind"] for cell in plan["timeline"][1]] == ["F", "B"] * 8
    assert (
        0.08 < plan["bubble_fraction"] < 0.15
    )  # about (p - 1) / (m + p - 1) = 1/9: the loss makes stages unequal


def test_stages_balanced_by_measurement_are_marked(scene: Scene) -> None:
    plan = scene.site.admin.post(f"{scene.runs}/plan", json=piped(scene, stages="auto")).json()
    assert plan["stages_are_measured"] is True
    assert sum(stage["layers"] for stage in plan["stages"]) == 4


def test_a_plan_refuses_what_a_submission_refuses(scene: Scene) -> None:
    for sections, field, hint in WRONG:
        if field.startswith("resources."):
            continue  # a layout is planned even if no node has room for it
        spec = scene.spec() | sections
        plan, run = (scene.site.admin.post(path, json=spec) for path in (f"{scene.runs}/plan", scene.runs))
        assert (plan.status_code, plan.json()["errors"]) == (run.status_code, run.json()["errors"])
        assert plan.json()["errors"][0]["field"] == field and hint in plan.json()["errors"][0]["message"]
    spec = piped(scene, stages=[1, 1])
    [problem] = scene.site.admin.post(f"{scene.runs}/plan", json=spec).json()["errors"]
    assert problem["field"] == "parallelism.stages" and "adds up to 2" in problem["message"]


def test_a_gpu_run_is_planned_as_compiled(scene: Scene) -> None:
    spec = piped(scene) | {"resources": {"device": "auto", "slots_per_node": 2}}
    here = scene.site.admin.post(f"{scene.runs}/plan", json=spec).json()
    Agent.join(scene.site, "node-g", gpus=2)
    there = scene.site.admin.post(f"{scene.runs}/plan", json=spec).json()
    assert there["memory"][0]["activations"] < here["memory"][0]["activations"]


def test_memory_is_shown_with_that_of_the_smallest_slot(scene: Scene) -> None:
    """node-a has 16 GiB for 2 slots."""

    def slot_of(device: str, slots: int) -> tuple[int | None, str | None]:
        spec = piped(scene) | {"resources": {"device": device, "slots_per_node": slots}, "parallelism": {}}
        plan = scene.site.admin.post(f"{scene.runs}/plan", json=spec).json()
        assert plan["warnings"] == []
        return plan["slot_bytes"], plan["slot_node"]

    assert slot_of("cpu", 2) == (8 << 30, "node-a")
    Agent.join(scene.site, "node-g", gpus=2)
    assert slot_of("cuda", 2) == (128 << 30, "node-g")
    Agent.join(scene.site, "node-s", cpu_slots=4)
    assert slot_of("cpu", 2) == (4 << 30, "node-s")
    assert slot_of("cpu", 4) == (4 << 30, "node-s")


def test_a_rank_larger_than_its_slot_is_a_warning_and_not_an_error(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = piped(scene) | {
        "model": {"layers": 8, "width": 2_304, "heads": 32},
        "resources": {"device": "cpu", "slots_per_node": 1},
        "parallelism": {},
    }
    plan, run = (scene.site.admin.post(path, json=spec) for path in (f"{scene.runs}/plan", scene.runs))
    assert (plan.status_code, run.status_code) == (200, 201)
    [warning] = plan.json()["warnings"]
    assert "on node-a a slot's share of the memory is 8 GiB" in warning
    show(RunPlan.model_validate(plan.json()))
    printed = " ".join(capsys.readouterr().out.split())
    assert "The smallest slot, on node-a, has 8 GiB." in printed and warning in printed


def test_a_layout_that_no_node_has_slots_for_is_planned(scene: Scene) -> None:
    for resources in ({"device": "cpu", "slots_per_node": 4}, {"device": "cuda", "slots_per_node": 4}):
        spec = piped(scene) | {"resources": resources}
        plan, run = (scene.site.admin.post(path, json=spec) for path in (f"{scene.runs}/plan", scene.runs))
        assert (plan.status_code, run.status_code) == (200, 422)
        assert len(plan.json()["ranks"]) == 4
        assert plan.json()["slot_bytes"] is None


def test_a_plan_reports_if_no_node_has_the_memory(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """node-a has 16 GiB for 2 slots, and a single rank may use all of it."""

    def planned(**sections: Any) -> dict[str, Any]:
        spec = piped(scene) | {"parallelism": {}} | sections
        response = scene.site.admin.post(f"{scene.runs}/plan", json=spec)
        assert response.status_code == 200, response.text
        return dict(response.json())

    one, two = ({"device": "cpu", "slots_per_node": slots} for slots in (1, 2))
    between = {"layers": 8, "width": 2_304, "heads": 32}
    assert 8 << 30 < planned(model=between, resources=one)["memory"][0]["total"] < 16 << 30
    assert planned(model=between, resources=one)["too_large"] is None
    assert len(planned(model=between, resources=one)["warnings"]) == 1
    assert "the largest node, node-a, has 8 GiB" in planned(model=between, resources=two)["too_large"]
    huge = planned(model={"layers": 1_000, "width": 65_536, "heads": 512})
    assert huge["warnings"] == [] and " TiB, and the largest node, node-a" in huge["too_large"]
    show(RunPlan.model_validate(huge))
    assert "This does not fit. Each rank needs" in capsys.readouterr().out


def test_viewers_can_plan_and_other_teams_cannot(scene: Scene) -> None:
    assert scene.site.member("viewer").post(f"{scene.runs}/plan", json=piped(scene)).status_code == 200
    assert scene.site.other_team("globex").post(f"{scene.runs}/plan", json=piped(scene)).status_code == 404


def test_the_command_prints_the_plan(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    response = scene.site.admin.post(f"{scene.runs}/plan", json=piped(scene, stages="auto"))
    show(RunPlan.model_validate(response.json()))
    printed = capsys.readouterr().out
    assert "2 ranks = pipeline 2 × data 1 × tensor 1" in printed
    assert "Stages are chosen when the run starts" in printed
    assert "ranks are idle 1" in printed and "weights" in printed and "host" not in printed


def test_the_command_writes_numbers_as_the_pages_do(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    layers = {"layers": 2, "width": 8_192, "heads": 64}
    spec = scene.spec(model=layers, resources={"device": "cpu", "slots_per_node": 1})
    plan = RunPlan.model_validate(scene.site.admin.post(f"{scene.runs}/plan", json=spec).json())
    show(plan)
    printed = capsys.readouterr().out
    assert printed.startswith("1 rank = pipeline 1")
    total = format_bytes(plan.memory[0].total)
    assert f" {total} " in printed and "GiB" in total and "  MiB  " not in printed
