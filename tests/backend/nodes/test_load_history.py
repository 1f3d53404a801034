"""The load of a node over the last hours."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from tests.backend.scripted_agent import Scene
from trainwright_backend.nodes import load_history
from trainwright_backend.nodes.tables import NodeLoad

START = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)


class Clock:
    """The time of measurements."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self._scene, self._at = scene, START
        monkeypatch.setattr(load_history, "now", lambda: self._at)

    def measure(self, seconds: float, cpu: float, *gpus: float) -> None:
        """A heartbeat ``seconds`` after the start."""
        self._at = START + timedelta(seconds=seconds)
        hardware = {
            "cpu_utilization": cpu,
            "memory_bytes": 3 * 2**30,
            "memory_total_bytes": 2**34,
            "disk_bytes": 2**30,
            "disk_total_bytes": 2**40,
            "gpus": [{"index": index, "utilization": use} for index, use in enumerate(gpus)],
        }
        self._scene.agent.heartbeat(hardware=hardware)


@pytest.fixture
def clock(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(scene, monkeypatch)


def load(scene: Scene, hours: int) -> tuple[dict[str, Any], dict[str, list[float | None]]]:
    [node] = scene.site.admin.get("/api/v1/nodes").json()
    response = scene.site.admin.get(f"/api/v1/nodes/{node['id']}/load", params={"hours": hours})
    assert response.status_code == 200, response.text
    found = response.json()
    return found, {item["name"]: item["values"] for item in found["series"]}


@pytest.mark.both_databases
def test_the_first_measurement_of_each_minute_is_shown_and_a_pause_is_a_gap(
    scene: Scene, clock: Clock
) -> None:
    for seconds, cpu in ((0, 0.1), (10, 0.9), (50, 0.9), (60, 0.3), (240, 0.5)):
        clock.measure(seconds, cpu, 0.5, 0.7)
    found, series = load(scene, 1)
    assert (found["start"], found["interval_seconds"]) == ("2026-03-01T12:00:00Z", 60)
    assert series["cpu_utilization"] == [0.1, 0.3, None, None, 0.5]
    assert series["node_memory_bytes"][0] == 3 * 2**30
    assert series["gpu_utilization/1"] == [0.7, 0.7, None, None, 0.7]
    assert series["mean_gpu_utilization"][0] == pytest.approx(0.6)


@pytest.mark.both_databases
def test_a_day_is_shown_in_means_of_five_minutes_and_older_measurements_are_deleted(
    scene: Scene, clock: Clock
) -> None:
    for minutes, cpu in ((0, 0.9), (1, 0.9), (24 * 60 - 4, 0.2), (24 * 60 - 3, 0.4), (24 * 60 + 1, 0.6)):
        clock.measure(60 * minutes, cpu)
    found, series = load(scene, 24)
    assert found["interval_seconds"] == 300 and found["start"] == "2026-03-01T12:00:00Z"
    values = series["cpu_utilization"]
    assert len(values) == 289 and [value for value in values if value is not None] == pytest.approx(
        [0.9, 0.3, 0.6]
    )
    with scene.database.read() as session:
        assert session.scalar(select(func.count()).select_from(NodeLoad)) == 4
    _, series = load(scene, 4)
    assert [value for value in series["cpu_utilization"] if value is not None] == [0.2, 0.4, 0.6]


def test_without_measurements_nothing_is_shown(scene: Scene) -> None:
    scene.agent.heartbeat()
    found, series = load(scene, 24)
    assert series == {} and found["interval_seconds"] == 300
    [node] = scene.site.admin.get("/api/v1/nodes").json()
    path = f"/api/v1/nodes/{node['id']}/load"
    for hours in (0, 25):
        assert scene.site.admin.get(path, params={"hours": hours}).status_code == 422
    assert scene.site.admin.get("/api/v1/nodes/node_a/load").status_code == 404
