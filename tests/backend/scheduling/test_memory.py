"""Runs wait for a node with the memory that their plan states for the fullest rank, if a node that had it lost it meanwhile."""

from typing import Any

from tests.backend.scripted_agent import Agent, Scene, inventory

LARGE: dict[str, Any] = {"model": {"layers": 8, "width": 2_304, "heads": 32}, "batch": {"micro_sequences": 1}}
"""Needs more than 8 GiB and less than 16 GiB for a rank, unless its layout divides that."""


def set_memory(agent: Agent, gib: int, gpus: int = 0) -> None:
    sizes = inventory(gpus=gpus)
    for gpu in sizes["gpus"]:
        gpu["memory_bytes"] = gib << 30
    agent.heartbeat(inventory=sizes | ({} if gpus else {"memory_bytes": gib << 30}))


def submit_before_shrinking(scene: Scene) -> str:
    """A run that node-a could hold when it was submitted; now it has 16 GiB, which the two ranks would share."""
    set_memory(scene.agent, 64)
    run_id = scene.submit(2, **LARGE)
    set_memory(scene.agent, 16)
    return run_id


def placed(scene: Scene, agent: Agent) -> list[str]:
    scene.control.sweep()
    return [item["run_id"] for item in agent.heartbeat()]


def test_a_run_that_no_node_could_hold_any_more_waits_until_a_larger_one_joins(scene: Scene) -> None:
    waiting = submit_before_shrinking(scene)
    assert placed(scene, scene.agent) == []
    plan = scene.site.admin.post(f"{scene.runs}/plan", json=scene.spec(2, **LARGE)).json()
    need = max(part["total"] + part["host"] for part in plan["memory"]) / 2**30
    assert 8 < need < 16 and "the largest node, node-a, has 8 GiB" in plan["too_large"]
    assert scene.show(waiting)["sentence"] == (
        f"needs a node with {need:.3g} GiB for a rank; the largest online node, node-a, has 8 GiB"
    )
    small = scene.submit(2)
    assert placed(scene, scene.agent) == [small], "a run that cannot start reserves nothing"
    larger = Agent.join(scene.site, "node-b")
    set_memory(larger, 64)
    assert placed(scene, larger) == [waiting]


def test_one_rank_may_use_the_memory_of_the_entire_cpu_node(scene: Scene) -> None:
    alone = scene.submit(1, **LARGE)
    assert placed(scene, scene.agent) == [alone]


def test_a_gpu_run_needs_gpus_that_are_large_enough(scene: Scene) -> None:
    small, large = (Agent.join(scene.site, name, gpus=2) for name in ("node-g", "node-h"))
    set_memory(small, 8, gpus=2)
    set_memory(large, 24, gpus=2)
    runs = [
        scene.submit(**LARGE, resources={"device": "cuda", "slots_per_node": slots}) for slots in (2, 1, 1)
    ]
    assert placed(scene, large) == runs[:1] and placed(scene, small) == []
    assert scene.show(runs[1])["sentence"] == "needs 1 slot, 0 free on 1 node"
    assert scene.cancel(runs[0]).status_code == 202
    assert placed(scene, large) == runs[1:]


def test_a_drained_node_with_enough_memory_is_named(scene: Scene) -> None:
    larger = Agent.join(scene.site, "node-b")
    set_memory(larger, 64)
    [shown] = [node for node in scene.site.admin.get("/api/v1/nodes").json() if node["name"] == "node-b"]
    scene.site.admin.patch(f"/api/v1/nodes/{shown['id']}", json={"draining": True})
    waiting = scene.submit(2, **LARGE)
    assert placed(scene, larger) == placed(scene, scene.agent) == []
    assert scene.show(waiting)["sentence"] == "needs 2 slots; node-b is drained"


def test_a_layout_that_divides_the_memory_lets_a_waiting_run_start(scene: Scene) -> None:
    waiting = submit_before_shrinking(scene)
    assert placed(scene, scene.agent) == []
    layout = {"parallelism": {"pipeline": 2}, "micro_sequences": 1}
    response = scene.site.admin.put(f"{scene.runs}/{waiting}/layout", json=layout)
    assert response.status_code == 200, response.text
    assert placed(scene, scene.agent) == [waiting]
