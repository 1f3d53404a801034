"""A run that no joined node has the memory for is refused at the field whose change lets it fit."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.backend.runs.conftest import Served
from tests.backend.scripted_agent import Agent, Scene, inventory
from trainwright.sizes import format_bytes

MIB = 2**20
CARDS = {
    "h100": ("NVIDIA H100 80GB HBM3", 81_559 * MIB, "9.0"),
    "a100": ("NVIDIA A100-PCIE-40GB", 40_960 * MIB, "8.0"),
    "l40s": ("NVIDIA L40S", 46_068 * MIB, "8.9"),
}
"""Name, memory and compute capability."""

THREE_BILLION = {"layers": 26, "width": 3_072, "heads": 24, "kv_heads": 24, "feed_forward": 8_192}
THIRTEEN_BILLION = {"layers": 40, "width": 5_120, "heads": 40, "kv_heads": 40, "feed_forward": 13_824}
SMALL = {"layers": 24, "width": 2_048, "heads": 16, "kv_heads": 16}
SHORT = {"sequence_tokens": 512, "micro_sequences": 1, "global_sequences": 64}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """No statement of the refusal is special to a database."""
    return sqlite_url


@pytest.fixture
def cards(scene: Scene) -> None:
    """Nodes of two GPUs each, besides the scene's CPU node of 16 GiB."""
    for number, node in enumerate(("h100-a", "a100-a", "a100-b", "l40s-a")):
        name, memory, capability = CARDS[node.partition("-")[0]]
        gpu = {"name": name, "memory_bytes": memory, "capability": capability}
        gpus = [{"index": index, **gpu} for index in range(2)]
        Agent.join(scene.site, node, reported={"gpus": gpus, "peer_address": f"10.0.0.{number + 1}"})


def cuda(slots: int = 1, **more: Any) -> dict[str, Any]:
    return {"device": "cuda", "slots_per_node": slots} | more


def refusal(scene: Scene, **sections: Any) -> dict[str, Any]:
    """The problem with which a submission is refused."""
    given: dict[str, Any] = {"precision": {"kind": "bf16"}, "batch": SHORT} | sections
    response = scene.site.admin.post(scene.runs, json=scene.spec(**given))
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    checked = scene.site.admin.post(f"{scene.runs}/validate", json=scene.spec(**given)).json()
    assert checked["problems"] == [error]
    return dict(error)


CASES: dict[str, tuple[dict[str, Any], str, Any, str, str]] = {
    "model": (
        {"model": THIRTEEN_BILLION, "resources": cuda()},
        "model.layers", 40, "h100-a, has 79.6 GiB for it.", "Choose a smaller model than 40 layers of width 5,120",
    ),
    "micro batch": (
        {"model": SMALL, "resources": cuda(), "batch": {"sequence_tokens": 4_096, "micro_sequences": 64, "global_sequences": 64}},
        "batch.micro_sequences", 64, "h100-a, has", "With batch.micro_sequences 1 instead of 64 it needs 26.3 GiB",
    ),
    "activations": (
        {"model": THREE_BILLION, "resources": cuda(gpu_model="L40S")},
        "memory.recompute", "none", "l40s-a, has 45 GiB for it.", "With memory.recompute selective instead of none it needs 44.9 GiB",
    ),
    "optimizer state": (
        {"model": THREE_BILLION, "resources": cuda(2, gpu_model="A100")},
        "parallelism.zero_stage", 0, "a100-a, has 40 GiB for it.", "With parallelism.zero_stage 3 instead of 0 it needs 29.5 GiB",
    ),
    "second node": (
        {"model": THREE_BILLION, "resources": cuda(nodes=2, gpu_model="A100")},
        "parallelism.zero_stage", 0, "a100-b, which the run would need too, has 40 GiB for it.", "With parallelism.zero_stage 3",
    ),
    "cpu": (
        {"model": THREE_BILLION, "resources": {"device": "cpu", "slots_per_node": 1}, "precision": {"kind": "fp32"}},
        "model.layers", 26, "has 16 GiB for it when no other run is on it.", "add a node",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_no_card_can_hold_is_refused_at_the_field_to_change(
    scene: Scene, cards: None, case: str
) -> None:
    sections, field, value, has, remedy = CASES[case]
    error = refusal(scene, **sections)
    assert (error["field"], error["value"]) == (field, value)
    assert has in error["message"] and remedy in error["message"], error["message"]


def test_the_change_that_a_refusal_names_is_accepted(scene: Scene, cards: None) -> None:
    for case in ("micro batch", "activations", "optimizer state", "second node"):
        sections, path, *_, remedy = CASES[case]
        section, field = path.split(".")
        value = remedy.removeprefix(f"With {path} ").split()[0]
        changed = sections | {
            section: sections.get(section, {}) | {field: int(value) if value.isdecimal() else value}
        }
        given: dict[str, Any] = {"precision": {"kind": "bf16"}, "batch": SHORT} | changed
        response = scene.site.admin.post(scene.runs, json=scene.spec(**given))
        assert response.status_code == 201, response.text
        assert scene.cancel(response.json()["id"]).status_code == 202


def test_plan_estimate_and_refusal_have_the_same_figures(scene: Scene) -> None:
    """node-a has 16 GiB for 2 slots. On CPUs, offload takes the memory of the slot."""
    given: dict[str, Any] = {
        "model": THREE_BILLION,
        "resources": {"device": "cpu", "slots_per_node": 1},
        "precision": {"kind": "fp32"},
        "batch": SHORT,
        "parallelism": {"engine": "deepspeed", "zero_stage": 1, "offload": "optimizer"},
    }
    scene.agent.heartbeat(inventory=inventory() | {"deepspeed": True})
    error = refusal(scene, **given)
    plan = scene.site.admin.post(f"{scene.runs}/plan", json=scene.spec(**given)).json()
    [rank] = plan["memory"]
    assert rank["host"] > 0
    needed, available = (format_bytes(size) for size in (rank["total"] + rank["host"], plan["largest_bytes"]))
    assert f"takes {needed}, and the largest node, node-a, has {available} for it" in error["message"]
    assert (plan["slot_bytes"], plan["largest_bytes"]) == (8 << 30, 16 << 30)
    small = scene.spec(**given | {"model": {"layers": 2, "width": 256, "heads": 4}})
    [rank] = scene.site.admin.post(f"{scene.runs}/plan", json=small).json()["memory"]
    estimate = scene.site.admin.post(f"{scene.runs}/estimate", json=small).json()
    assert estimate["memory_bytes"] == rank["total"] + rank["host"]


def test_a_run_is_accepted_if_a_drained_node_could_hold_it(scene: Scene, cards: None) -> None:
    """It waits, and says so."""
    (node,) = (item for item in scene.site.admin.get("/api/v1/nodes").json() if item["name"] == "h100-a")
    assert scene.site.admin.patch(f"/api/v1/nodes/{node['id']}", json={"draining": True}).status_code == 200
    run_id = scene.submit(model=THREE_BILLION, resources=cuda(), precision={"kind": "bf16"}, batch=SHORT)
    scene.control.sweep()
    assert scene.show(run_id)["sentence"] == "needs 1 slot; h100-a is drained"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_check_and_submit_print_the_field(scene: Scene, served: Served, tmp_path: Path, device: str) -> None:
    Agent.join(scene.site, "node-g", gpus=2).heartbeat(inventory=inventory(gpus=2))
    huge = scene.spec(model={"layers": 1_000, "width": 65_536, "heads": 512})
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(huge | {"resources": {"device": device, "slots_per_node": 2}}))
    key = scene.site.member("editor").headers["Authorization"].removeprefix("Bearer ")
    largest = "node-g" if device == "cuda" else "node-a"
    share = "for it." if device == "cuda" else "8 GiB for each of 2 ranks when no other run is on it."
    for command in ("check", "submit"):
        printed = served.command(key, f"runs {command} {file}")
        assert printed.exit_code == 1
        for text in ("model.layers", "1,000", f"the largest node, {largest}", "or add a node", share):
            assert text in printed.output, printed.output
    estimated = served.command(key, f"estimate {file}")
    assert estimated.exit_code == 1
    assert "memory       " in estimated.stdout and "model.layers" in estimated.stderr
