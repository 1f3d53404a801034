"""A run saves and is paused at its maximum run time, which expected starts use."""

from datetime import timedelta

from tests.backend.scripted_agent import Scene
from trainwright_backend.core.db import now
from trainwright_backend.core.ids import parse_id
from trainwright_backend.runs.tables import Run


def on_nodes_for(scene: Scene, run_id: str, hours: float) -> None:
    """Pretend that the run's time was last metered this long ago."""
    with scene.database.write() as session:
        session.get_one(Run, parse_id("run", run_id)).metered_until = now() - timedelta(hours=hours)


def test_a_run_is_paused_at_its_maximum_and_resuming_allows_the_same_time_again(scene: Scene) -> None:
    work = scene.running(resources={"device": "cpu", "max_hours": 2})
    on_nodes_for(scene, work.run_id, 1.9)
    scene.control.sweep()
    assert work.order("running") == "go"
    on_nodes_for(scene, work.run_id, 0.11)  # it was metered until now, so these add up
    scene.control.sweep()
    assert work.order("running") == "save"
    work.save(3)
    assert work.ended("saved", step=3) == "paused"
    shown = scene.show(work.run_id)
    assert shown["reason"] == "max_hours"
    assert shown["sentence"].startswith("Paused at step 3 of 10: it was on nodes for 2 h.")
    assert scene.site.admin.post(f"{scene.runs}/{work.run_id}/resume").status_code == 202
    scene.control.sweep()
    again = scene.agent.claim(work.run_id)
    scene.control.sweep()
    assert again.order("starting") == "go"


def test_attempts_add_up_and_waiting_does_not_count(scene: Scene) -> None:
    work = scene.running(resources={"device": "cpu", "max_hours": 2})
    on_nodes_for(scene, work.run_id, 1.5)
    assert work.ended("crashed") == "retry_wait"
    again = scene.again(work.run_id)
    on_nodes_for(scene, work.run_id, 0.6)
    scene.control.sweep()
    assert again.order("starting") != "go"
    assert scene.show(work.run_id)["reason"] == "max_hours"


def test_an_export_is_not_interrupted(scene: Scene) -> None:
    work = scene.running(last_step=10, resources={"device": "cpu", "max_hours": 1})
    work.save(10)
    assert work.order("completing") == "go"
    on_nodes_for(scene, work.run_id, 5)
    scene.control.sweep()
    assert work.order("completing") == "go"
    work.save(10, "export")
    assert work.ended("finished", step=10) == "succeeded"


def test_a_waiting_run_is_expected_when_the_maximum_of_the_one_before_it_is_reached(scene: Scene) -> None:
    scene.running(2, resources={"device": "cpu", "slots_per_node": 2, "max_hours": 3})
    scene.submit()
    scene.control.sweep()
    [waiting] = scene.site.admin.get(f"{scene.site.path}/queue").json()["items"]
    assert waiting["expected_start"] is not None
    expected = (now() + timedelta(hours=3)).isoformat()
    assert waiting["expected_start"][:13] in (expected[:13], (now() + timedelta(hours=2.9)).isoformat()[:13])


def test_a_maximum_of_no_hours_is_refused_at_the_field(scene: Scene) -> None:
    refused = scene.site.admin.post(
        scene.runs, json=scene.spec(resources={"device": "cpu", "max_hours": 0})
    ).json()
    assert refused["errors"][0]["field"] == "resources.max_hours"
