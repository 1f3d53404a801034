"""Several runs at once: each is answered as it is alone, and nobody's but the team's."""

from typing import Any

from tests.backend.scripted_agent import Scene
from trainwright_backend.core.ids import new_id, public_id


def compared(scene: Scene, runs: list[str], **query: Any) -> list[dict[str, Any]]:
    path = scene.runs.removesuffix("/runs") + "/metrics"
    answer = scene.site.admin.get(path, params={"runs": runs} | query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def test_each_run_has_the_curves_that_it_has_alone(scene: Scene) -> None:
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
        assert [one["run"] for one in found] == runs
        for one in found:
            alone = scene.site.admin.get(
                f"{scene.runs}/{one['run']}/metrics", params={"points": 1_000} | query
            )
            assert one["series"] == alone.json()["series"], query
    [short] = compared(scene, [other.run_id], names="loss", points=20)[0]["series"]
    assert len(short["steps"]) <= 20 and short["steps"][-1] == 300


def test_runs_that_are_not_the_teams_are_left_out(scene: Scene) -> None:
    work = scene.running(last_step=3)
    unknown = [public_id("run", new_id()), "run_none", "nonsense"]
    assert [one["run"] for one in compared(scene, [*unknown, work.run_id, work.run_id])] == [work.run_id]
    listed = scene.site.admin.get(scene.runs, params={"ids": [*unknown, work.run_id]}).json()
    assert [run["id"] for run in listed["items"]] == [work.run_id]
    assert scene.site.admin.get(scene.runs, params={"ids": unknown}).json()["items"] == []
    path = scene.runs.removesuffix("/runs") + "/metrics"
    assert scene.site.admin.get(path).status_code == 422
    many = scene.site.admin.get(path, params={"runs": [work.run_id] * 101})
    assert many.status_code == 422 and many.json()["errors"][0]["field"] == "runs"
