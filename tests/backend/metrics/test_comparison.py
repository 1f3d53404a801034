"""Curves of several runs: each is the same as alone, and only the team's runs are returned."""

from typing import Any

import pytest

from tests.backend.scripted_agent import Scene
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.metrics import metric_queries


def compared(scene: Scene, runs: list[str], **query: Any) -> list[dict[str, Any]]:
    path = scene.runs.removesuffix("/runs") + "/metrics"
    response = scene.site.admin.get(path, params={"runs": runs} | query)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()
    return found


def test_each_run_has_the_same_curves_as_alone(scene: Scene) -> None:
    crashed = scene.running(last_step=40, steps=4_000)
    crashed.ended("crashed")
    again = scene.again(crashed.run_id)
    again.begin(resume_step=20)
    again.step(21, 1_500, scale=2.0)
    again.ended("crashed")
    other = scene.running(last_step=300, steps=4_000)
    runs = [other.run_id, crashed.run_id]
    for query in (
        {},
        {"names": ["loss"]},
        {"names": ["loss"], "points": 100},
        {"names": ["loss", "tokens"], "after_step": 10, "to_step": 250, "points": 50},
        {"names": ["tokens"], "after_step": 1_499},
    ):
        found = compared(scene, runs, **query)
        assert [item["run"] for item in found] == runs
        for item in found:
            alone = scene.site.admin.get(
                f"{scene.runs}/{item['run']}/metrics", params={"points": 1_000} | query
            )
            assert item["series"] == alone.json()["series"], query
    [short] = compared(scene, [other.run_id], names="loss", points=20)[0]["series"]
    assert len(short["steps"]) <= 20 and short["steps"][-1] == 300


def test_runs_of_other_teams_are_left_out(scene: Scene) -> None:
    work = scene.running(last_step=3)
    unknown = [public_id("run", new_id()), "run_none", "nonsense"]
    assert [item["run"] for item in compared(scene, [*unknown, work.run_id, work.run_id])] == [work.run_id]
    listed = scene.site.admin.get(scene.runs, params={"ids": [*unknown, work.run_id]}).json()
    assert [run["id"] for run in listed["items"]] == [work.run_id]
    assert scene.site.admin.get(scene.runs, params={"ids": unknown}).json()["items"] == []
    path = scene.runs.removesuffix("/runs") + "/metrics"
    assert scene.site.admin.get(path).status_code == 422
    stranger = scene.site.other_team("initech")
    for asked in (("metrics", {"runs": work.run_id}), ("runs", {"ids": work.run_id})):
        response = stranger.get(f"/api/v1/teams/initech/{asked[0]}", params=asked[1])
        assert response.status_code == 200 and response.json() in ([], {"items": [], "next_cursor": None})
    many = scene.site.admin.get(path, params={"runs": [work.run_id] * 101})
    assert many.status_code == 422 and many.json()["errors"][0]["field"] == "runs"


def test_more_series_than_a_response_may_have_are_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [scene.running(last_step=3).run_id for _ in range(2)]
    series = sum(len(item["series"]) for item in compared(scene, runs))
    monkeypatch.setattr(metric_queries, "MAX_COMPARED", series)
    assert len(compared(scene, runs)) == 2
    monkeypatch.setattr(metric_queries, "MAX_COMPARED", series - 1)
    path = scene.runs.removesuffix("/runs") + "/metrics"
    refused = scene.site.admin.get(path, params={"runs": runs})
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "names"
