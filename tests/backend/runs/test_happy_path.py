"""A run from its submission to its success, through HTTP alone."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.backend.conftest import Site
from tests.backend.scripted_agent import Agent, Control

pytestmark = pytest.mark.both_databases


def spec_over(dataset: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A small run on one CPU slot, over ten steps."""
    return {
        "name": "pilot",
        "data": {"dataset": dataset["id"], "tokenizer": {"kind": "bytes"}},
        "schedule": {"steps": 10, "warmup_steps": 1},
        "resources": {"device": "cpu", "slots_per_node": 1},
    } | sections


def test_a_run_goes_from_submission_to_success(site: Site, upload: Callable[..., dict[str, Any]]) -> None:
    agent, control = Agent.join(site), Control(site.app)
    dataset = upload()
    response = site.admin.post(f"{site.path}/runs", json=spec_over(dataset))
    assert response.status_code == 201, response.text
    run_id = response.json()["id"]
    assert response.json()["state"] == "queued"
    site.prepare()
    control.sweep()
    assert [placed["run_id"] for placed in agent.heartbeat()] == [run_id]
    work = agent.claim(run_id)
    assert work.claim.job.spec.data.version == 1
    assert {file.path for file in work.claim.downloads} >= {"data/manifest.json", "data/tokenizer.json"}
    for file in work.claim.downloads:
        assert len(agent.client.get(file.url).content) == file.bytes
    assert work.log(b"hello\n").status_code == 200
    assert work.finish(10) == "succeeded"
    run = site.admin.get(f"{site.path}/runs/{run_id}").json()
    assert (run["state"], run["reason"], run["sentence"]) == ("succeeded", "finished", "loss 0.100")
    moves = [
        e["state"] for e in site.admin.get(f"{site.path}/runs/{run_id}/events").json() if e["type"] == "state"
    ]
    assert moves == ["queued", "leased", "starting", "running", "completing", "succeeded"]
    quota = site.admin.get(site.path).json()["quota"]
    assert {entry["device"]: entry["used"] for entry in quota} == {"cuda": 0, "cpu": 0}
    metrics = site.admin.get(f"{site.path}/runs/{run_id}/metrics").json()
    assert metrics["series"][0]["name"] == "loss"
    assert metrics["series"][0]["steps"] == list(range(1, 11))
    kinds = [(c["kind"], c["step"]) for c in site.admin.get(f"{site.path}/runs/{run_id}/checkpoints").json()]
    assert sorted(kinds) == [("export", 10), ("state", 10)]
    assert site.admin.get(f"{site.path}/runs/{run_id}/logs/1/rank-0.log").json()["text"] == "hello\n"
