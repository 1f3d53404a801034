"""Measurements of an agent become series of the run, at the step of their batch, and are shown for the node."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from tests.backend.scripted_agent import Agent, Scene, Work, losses
from trainwright_backend.core.db import now
from trainwright_backend.nodes.tables import Node

NODE = {
    "cpu_utilization": 0.5,
    "memory_bytes": 3 * 2**30,
    "memory_total_bytes": 8 * 2**30,
    "disk_bytes": 40 * 2**30,
    "disk_total_bytes": 100 * 2**30,
}
GPUS = [
    {"index": 2, "utilization": 0.9, "memory_bytes": 10, "power_watts": 300.0, "temperature_celsius": 60.0},
    {"index": 3, "utilization": 0.7, "memory_bytes": 30, "power_watts": 250.0},
]
RANKS = [
    {"rank": 0, "cpu_cores": 0.75, "memory_bytes": 5},
    {"rank": 1, "cpu_cores": 1.0, "memory_bytes": 6},
]


def send(work: Work, first: int, last: int, hardware: Any) -> Any:
    return work.send({**work.batch(metrics=[losses(first, last)]), "hardware": hardware})


def points(scene: Scene, work: Work, *names: str) -> dict[str, tuple[str, dict[int, float]]]:
    asked = {"names": list(names)} if names else {}
    found = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics", params=asked).json()["series"]
    return {
        item["name"]: (item["unit"], dict(zip(item["steps"], item["values"], strict=True)))
        for item in found
        if names or item["name"] not in ("loss", "tokens")
    }


def test_a_measurement_becomes_points_at_the_last_step_of_its_batch(scene: Scene) -> None:
    work = scene.running(last_step=3, steps=50)
    assert send(work, 4, 10, {**NODE, "gpus": GPUS, "ranks": RANKS}).status_code == 200
    assert send(work, 11, 12, None).status_code == 200
    assert send(work, 13, 20, {**NODE, "cpu_utilization": 1.0}).status_code == 200
    assert points(scene, work) == {
        "cpu_utilization": ("fraction", {10: 0.5, 20: 1.0}),
        "node_memory_bytes": ("bytes", {10: 3 * 2**30, 20: 3 * 2**30}),
        "node_disk_bytes": ("bytes", {10: 40 * 2**30, 20: 40 * 2**30}),
        "run_cpu_cores": ("cores", {10: 1.75}),
        "run_memory_bytes": ("bytes", {10: 11.0}),
        "mean_gpu_utilization": ("fraction", {10: 0.8}),
        "max_gpu_memory_bytes": ("bytes", {10: 30.0}),
        "total_gpu_power_watts": ("W", {10: 550.0}),
        "max_gpu_temperature_celsius": ("°C", {10: 60.0}),
    }
    each = points(scene, work, "gpu_*", "rank_*")
    assert each["gpu_utilization/2"] == ("fraction", {10: 0.9})
    assert each["gpu_temperature_celsius/2"] == ("°C", {10: 60.0})
    assert "gpu_temperature_celsius/3" not in each
    assert each["rank_cpu_cores/1"] == ("cores", {10: 1.0})
    assert scene.show(work.run_id)["summary"]["values"]["cpu_utilization"] == 1.0


def test_the_registry_has_every_series_with_its_unit(scene: Scene) -> None:
    work = scene.running(last_step=3, steps=50)
    send(work, 4, 5, {**NODE, "gpus": GPUS, "ranks": RANKS})
    registry = scene.site.admin.get("/api/v1/series").json()
    units = {item["name"]: item["unit"] for item in registry["series"] + registry["families"]}
    found = points(scene, work, "*")
    assert len(found) == 2 + 9 + 4 + 7
    assert all(units[name.partition("/")[0]] == unit for name, (unit, _) in found.items())


def test_a_resumed_run_discards_measurements_after_its_checkpoint(scene: Scene) -> None:
    work = scene.running(last_step=3, steps=50)
    send(work, 4, 10, NODE)
    send(work, 11, 20, NODE)
    work.ended("crashed")
    work = scene.again(work.run_id)
    work.begin(resume_step=15)
    assert list(points(scene, work)["cpu_utilization"][1]) == [10]


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_utilization": 1.5},
        {"cpu_utilization": "NaN"},
        {"memory_bytes": -1},
        {"disk_bytes": 2**70},
        {"gpus": [{"index": 2_000}]},
        {"gpus": [{"index": 1, "power_watts": 1e9}]},
        {"gpus": [{"index": 1}] * 1_025},
    ],
)
def test_a_node_cannot_report_impossible_measurements(scene: Scene, change: dict[str, Any]) -> None:
    work = scene.running(last_step=3, steps=50)
    assert send(work, 4, 5, {**NODE, **change}).status_code == 422
    assert (
        send(work, 4, 5, {**NODE, "ranks": [{"rank": 0, "cpu_cores": -1, "memory_bytes": 0}]}).status_code
        == 422
    )
    assert (
        scene.agent.client.post("/api/v1/agent/heartbeat", json={"hardware": {**NODE, **change}}).status_code
        == 422
    )
    assert send(work, 4, 5, NODE).status_code == 200, "nothing of the refused batches is stored"


def test_a_node_shows_its_current_use(scene: Scene) -> None:
    def shown(agent: Agent) -> Any:
        nodes = scene.site.admin.get("/api/v1/nodes").json()
        return next(node["hardware"] for node in nodes if node["name"] == "node-a")

    assert shown(scene.agent) is None
    scene.agent.heartbeat(hardware={**NODE, "gpus": GPUS})
    found = shown(scene.agent)
    assert found["cpu_utilization"] == 0.5 and found["gpus"][1]["temperature_celsius"] is None
    with scene.database.write() as session:
        session.execute(update(Node).values(last_heartbeat=now() - timedelta(hours=1)))
    assert shown(scene.agent) is None, "the node is offline"
    scene.agent.heartbeat(hardware=NODE)
    scene.agent.heartbeat()
    assert shown(scene.agent) is None, "an older agent took over"
