"""An FP8 run is placed only on GPUs with FP8 matmuls."""

from typing import Any

import pytest
from sqlalchemy import update

from tests.backend.scripted_agent import Agent, Scene, inventory
from trainwright_backend.nodes.tables import Node


def gpu(index: int, name: str, capability: str | None) -> dict[str, Any]:
    return {"index": index, "name": name, "memory_bytes": 1 << 37, "capability": capability}


def gpu_node(scene: Scene, name: str, *gpus: dict[str, Any]) -> Agent:
    return Agent.join(scene.site, name, reported={"gpus": list(gpus)})


def spec(scene: Scene, precision: dict[str, Any]) -> dict[str, Any]:
    return scene.spec(resources={"device": "cuda", "slots_per_node": 1}, precision=precision, model=MODEL)


def placed_on(scene: Scene, agents: list[Agent], precision: dict[str, Any]) -> list[str]:
    response = scene.site.admin.post(scene.runs, json=spec(scene, precision))
    assert response.status_code == 201, response.text
    run_id = response.json()["id"]
    scene.control.sweep()
    names = [
        agent.name for agent in agents if any(placed["run_id"] == run_id for placed in agent.heartbeat())
    ]
    assert scene.cancel(run_id).status_code == 202
    return names


MODEL = {"layers": 2, "width": 128, "feed_forward": 256, "heads": 4, "kv_heads": 4}
BLOCK = {"kind": "fp8", "fp8": {"scaling": "block"}}


@pytest.mark.parametrize(
    ("precision", "nodes"),
    [
        ({"kind": "bf16"}, ["a-a100"]),
        ({"kind": "fp8"}, ["b-l40s"]),
        (BLOCK, ["c-h100"]),
    ],
)
def test_a_run_gets_the_first_node_whose_gpus_support_its_precision(
    scene: Scene, precision: dict[str, Any], nodes: list[str]
) -> None:
    agents = [
        gpu_node(scene, "a-a100", gpu(0, "NVIDIA A100", "8.0")),
        gpu_node(scene, "b-l40s", gpu(0, "NVIDIA L40S", "8.9")),
        gpu_node(scene, "c-h100", gpu(0, "NVIDIA H100", "9.0")),
    ]
    assert placed_on(scene, agents, precision) == nodes


def test_a_node_with_one_older_gpu_gets_no_fp8_run(scene: Scene) -> None:
    mixed = gpu_node(scene, "a-mixed", gpu(0, "NVIDIA H100", "9.0"), gpu(1, "NVIDIA A100", "8.0"))
    newer = gpu_node(scene, "b-h100", gpu(0, "NVIDIA H100", "9.0"))
    assert placed_on(scene, [mixed, newer], {"kind": "fp8"}) == ["b-h100"]


def test_an_agent_that_reports_no_capabilities_gets_the_same_runs_as_before(scene: Scene) -> None:
    older = gpu_node(scene, "older", gpu(0, "NVIDIA H100", None))
    assert placed_on(scene, [older], {"kind": "fp8"}) == ["older"]


def test_a_run_that_waits_names_the_gpus_that_it_needs(scene: Scene) -> None:
    gpu_node(scene, "a-a100", gpu(0, "NVIDIA A100", "8.0"))
    gone = gpu_node(scene, "b-h100", gpu(0, "NVIDIA H100", "9.0"))
    run_id = scene.site.admin.post(scene.runs, json=spec(scene, {"kind": "fp8"})).json()["id"]
    with scene.database.write() as session:
        session.execute(update(Node).where(Node.name == gone.name).values(last_heartbeat=None))
    scene.control.sweep()
    assert scene.show(run_id)["sentence"] == (
        "needs 1 slot on GPUs of compute capability 8.9 or newer, which no online node has"
    )
    assert scene.cancel(run_id).status_code == 202


def test_a_precision_that_no_gpu_has_is_refused_at_its_field(scene: Scene) -> None:
    gpu_node(scene, "a-a100", gpu(0, "NVIDIA A100", "8.0"))
    response = scene.site.admin.post(scene.runs, json=spec(scene, {"kind": "fp8"}))
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["field"] == "precision.kind"
    assert error["message"] == (
        "fp8 needs GPUs of compute capability 8.9 or newer, but NVIDIA A100 has 8.0: use bf16, or add a node."
    )


@pytest.mark.parametrize("capability", ["nine", "9", "9.0.0", ""])
def test_an_invalid_capability_is_refused(scene: Scene, capability: str) -> None:
    agent = gpu_node(scene, "a-node", gpu(0, "NVIDIA H100", "9.0"))
    wrong = {**inventory(), "gpus": [gpu(0, "NVIDIA H100", capability)]}
    response = agent.client.post("/api/v1/agent/heartbeat", json={"inventory": wrong})
    assert response.status_code == 422


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("gpu_model", "B200", "No node has B200 GPUs. The nodes with enough slots have NVIDIA A100"),
        (
            "gpu_memory_gib",
            200,
            "No node has GPUs of at least 200 GiB. The nodes with enough slots have NVIDIA A100 with 128.0",
        ),
        ("gpu_capability", "9.0", "No node has GPUs of at least compute capability 9.0"),
    ],
)
def test_gpus_that_no_node_has_are_refused_at_their_field(
    scene: Scene, field: str, value: str | int, words: str
) -> None:
    gpu_node(scene, "a-a100", gpu(0, "NVIDIA A100", "8.0"))
    resources = {"device": "cuda", "slots_per_node": 1, field: value}
    response = scene.site.admin.post(scene.runs, json=scene.spec(resources=resources))
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["field"] == f"resources.{field}"
    assert words in error["message"]


def test_a_cpu_run_that_requests_gpus_is_refused(scene: Scene) -> None:
    for device, words in (("cpu", "is for GPUs, but device is cpu"), ("auto", "No joined node has a GPU")):
        resources = {"device": device, "slots_per_node": 1, "gpu_model": "H100"}
        response = scene.site.admin.post(scene.runs, json=scene.spec(resources=resources))
        (error,) = response.json()["errors"]
        assert error["field"] == "resources.gpu_model" and words in error["message"]


def test_data_ranks_over_unlike_nodes_are_refused_and_a_pipeline_is_not(scene: Scene) -> None:
    for number, (name, model) in enumerate({"a-a100": "NVIDIA A100", "b-l40s": "NVIDIA L40S"}.items()):
        Agent.join(
            scene.site,
            name,
            reported={"gpus": [gpu(0, model, "8.0")], "peer_address": f"10.0.0.{number + 1}"},
        )
    two = {"device": "cuda", "nodes": 2, "slots_per_node": 1}
    response = scene.site.admin.post(scene.runs, json=scene.spec(resources=two))
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert (error["field"], error["value"]) == ("resources.nodes", 2)
    assert "1 joined node qualifies. b-l40s has other GPUs" in error["message"]
    assert "use parallelism.pipeline with stages auto over unlike nodes" in error["message"]
    piped = scene.spec(resources=two, parallelism={"pipeline": 2, "stages": "auto"})
    response = scene.site.admin.post(scene.runs, json=piped)
    assert response.status_code == 201, response.text
    assert scene.cancel(response.json()["id"]).status_code == 202
