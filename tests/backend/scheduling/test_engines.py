"""Nodes without DeepSpeed, and host memory for offload: runs are refused, placed elsewhere, or wait with a reason."""

from typing import Any

import pytest

from tests.backend.scripted_agent import Agent, Scene, inventory
from trainwright.commands.plan import show, show_estimate
from trainwright.contracts.api.plans import RunPlan
from trainwright.contracts.api.usage import RunEstimate

OFFLOAD = {"parallelism": {"engine": "deepspeed", "zero_stage": 1, "offload": "optimizer"}}
DEEPSPEED = {"parallelism": {"engine": "deepspeed", "zero_stage": 1}}


def report_engines(agent: Agent, deepspeed: bool | None, **more: Any) -> None:
    agent.heartbeat(inventory=inventory() | {"deepspeed": deepspeed} | more)


def drain(scene: Scene, name: str, draining: bool) -> None:
    [node] = [item for item in scene.site.admin.get("/api/v1/nodes").json() if item["name"] == name]
    response = scene.site.admin.patch(f"/api/v1/nodes/{node['id']}", json={"draining": draining})
    assert response.status_code == 200, response.text


def problem(response: Any) -> dict[str, Any]:
    assert response.status_code == 422, response.text
    [found] = response.json()["errors"]
    return dict(found)


def test_an_engine_that_no_node_has_is_refused_at_its_field(scene: Scene) -> None:
    report_engines(scene.agent, False)
    Agent.join(scene.site, "node-g", cpu_slots=1)  # has not reported its engines, and is too small
    spec = scene.spec(2, **DEEPSPEED)
    for path in (scene.runs, f"{scene.runs}/plan", f"{scene.runs}/estimate"):
        found = problem(scene.site.admin.post(path, json=spec))
        assert found["field"] == "parallelism.engine"
        assert found["message"].startswith(
            "deepspeed is not installed on any node with 2 CPU slots (node-a): install it there"
        )
    spec_check = scene.site.admin.post(f"{scene.runs}/validate", json=spec).json()
    assert [item["field"] for item in spec_check["problems"]] == ["parallelism.engine"]
    assert scene.site.admin.post(scene.runs, json=scene.spec(1, **DEEPSPEED)).status_code == 201
    report_engines(scene.agent, None)  # an older agent
    assert scene.site.admin.post(scene.runs, json=spec).status_code == 201


def test_a_layout_of_an_engine_that_no_node_has_is_refused_at_its_field(scene: Scene) -> None:
    work = scene.running(2)
    report_engines(scene.agent, False)
    found = problem(scene.site.admin.put(f"{scene.runs}/{work.run_id}/layout", json=DEEPSPEED))
    assert found["field"] == "parallelism.engine" and "node-a" in found["message"]
    assert scene.show(work.run_id)["spec"]["parallelism"]["engine"] == "native"
    report_engines(scene.agent, True)
    response = scene.site.admin.put(f"{scene.runs}/{work.run_id}/layout", json=DEEPSPEED)
    assert response.status_code == 200
    scene.cancel(work.run_id)
    assert work.ended("stopped") == "cancelled"


def test_a_run_is_placed_on_the_node_that_has_its_engine(scene: Scene) -> None:
    run_id = scene.submit(2, **DEEPSPEED)
    report_engines(scene.agent, False)
    scene.control.sweep()
    assert scene.agent.heartbeat() == []
    sentence = scene.show(run_id)["sentence"]
    assert sentence == "needs 2 slots and engine deepspeed, which is not installed on node-a"
    other = scene.submit(2)  # queued behind it, but needs nothing special
    scene.control.sweep()
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [other]
    able = Agent.join(scene.site, "node-b")
    report_engines(able, True)
    scene.control.sweep()
    assert [placed["run_id"] for placed in able.heartbeat()] == [run_id]
    assert able.claim(run_id).finish(10) == "succeeded"


def plan_of(scene: Scene, spec: dict[str, Any]) -> RunPlan:
    return RunPlan.model_validate(scene.site.admin.post(f"{scene.runs}/plan", json=spec).json())


def test_offload_prefers_a_node_with_memory_for_it_and_waits_for_that(scene: Scene) -> None:
    small, large = (Agent.join(scene.site, name, gpus=2) for name in ("node-b", "node-c"))
    gpus = {"resources": {"device": "cuda", "slots_per_node": 2}}
    report_engines(large, True, **inventory(gpus=2))
    needs, offloaded = (plan_of(scene, scene.spec(**spec) | gpus).host_bytes for spec in ({}, OFFLOAD))
    assert needs < offloaded
    report_engines(small, True, **inventory(gpus=2) | {"memory_bytes": needs})
    first, second = (scene.submit(**OFFLOAD | gpus) for _ in range(2))
    plain = scene.submit(**gpus)
    scene.control.sweep()
    assert [placed["run_id"] for placed in large.heartbeat()] == [first]
    assert [placed["run_id"] for placed in small.heartbeat()] == [plain]
    assert scene.show(second)["sentence"] == "needs 2 slots, 0 free on 1 node"
    for run_id in (first, plain):
        assert scene.cancel(run_id).status_code == 202
    drain(scene, "node-c", True)
    scene.control.sweep()
    assert small.heartbeat() == [], "a node with the memory will be available again"
    assert scene.show(second)["sentence"] == "needs 2 slots; node-c is drained"
    drain(scene, "node-c", False)
    report_engines(large, True, **inventory(gpus=2) | {"memory_bytes": needs})
    scene.control.sweep()
    assert [placed["run_id"] for placed in small.heartbeat()] == [second], (
        "no node has the memory: memory is ignored"
    )


@pytest.mark.both_databases
def test_plans_and_estimates_include_the_host_memory_of_offload(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    small = Agent.join(scene.site, "node-g", gpus=2)
    small.heartbeat(inventory=inventory(gpus=2) | {"deepspeed": True, "memory_bytes": 1 << 20})
    spec = scene.spec(**OFFLOAD) | {"resources": {"device": "cuda", "slots_per_node": 2}}
    planned = plan_of(scene, spec)
    assert planned.host_bytes == 2 * planned.memory[0].host > 1 << 20
    assert (planned.host_node, planned.host_node_bytes) == ("node-g", 1 << 20)
    [warning] = planned.warnings
    assert "the largest node for this run, node-g, has 1 MiB" in warning
    larger = Agent.join(scene.site, "node-h", gpus=2)
    planned = plan_of(scene, spec)
    assert planned.warnings == [] and planned.host_node == larger.name
    found = RunEstimate.model_validate(scene.site.admin.post(f"{scene.runs}/estimate", json=spec).json())
    assert found.host_bytes == planned.host_bytes
    show(planned)
    show_estimate(found)
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "of host memory on each node; node-h has 16 GiB." in printed
        and "for checkpoints and offload" in printed
    )


def test_nodes_report_whether_they_have_deepspeed(scene: Scene) -> None:
    for reported in (None, False, True):
        report_engines(scene.agent, reported)
        [node] = scene.site.admin.get("/api/v1/nodes").json()
        assert node["inventory"]["deepspeed"] is reported
