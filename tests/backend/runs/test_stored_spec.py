"""Specs of stored runs, which are parsed once for all runs that differ only in name and seed."""

import pytest

from tests.backend.scripted_agent import Scene
from trainwright_backend.core.ids import parse_id
from trainwright_backend.runs.stored_spec import nameless_spec, stored_spec
from trainwright_backend.runs.tables import Run


def test_runs_that_differ_in_name_and_seed_keep_their_own(scene: Scene) -> None:
    runs = [scene.submit(1, name=name, seed=seed) for name, seed in (("first", 3), ("second", 7))]
    shown = [scene.show(run)["spec"] for run in runs]
    assert [(spec["name"], spec["seed"]) for spec in shown] == [("first", 3), ("second", 7)]
    scene.control.sweep()
    jobs = [scene.agent.claim(run).claim.job for run in runs]
    assert [(job.spec.name, job.spec.seed) for job in jobs] == [("first", 3), ("second", 7)]


@pytest.mark.parametrize("addition", [{"sound": "loud"}, {"name_of_host": "gpu-\ud800"}])
def test_a_spec_that_cannot_be_read_keeps_no_other_run_from_its_nodes(
    scene: Scene, addition: dict[str, str]
) -> None:
    unreadable, other = scene.submit(1), scene.submit(1)
    with scene.site.app.state.database.write() as session:
        run = session.get_one(Run, parse_id("run", unreadable))
        run.spec = {**run.spec, **addition}
        assert nameless_spec(run) is None
        with pytest.raises(ValueError, match="RunSpec"):
            stored_spec(run)
    scene.control.sweep()
    assert scene.agent.claim(other).claim.job.spec.name == scene.show(other)["name"]
