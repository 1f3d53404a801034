"""Estimates: figures by formula, and a time only if an equal workload was measured."""

from statistics import median
from typing import Any

import pytest

from tests.backend.scripted_agent import Agent, Scene, Work, inventory, losses
from tests.backend.sent_statements import sent_statements
from trainwright.commands.plan import show_estimate
from trainwright.contracts.api.usage import RunEstimate
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import count_parameters, flops_per_token
from trainwright_backend.core.ids import parse_id
from trainwright_backend.nodes.tables import Node

RATES = [100.0, 900.0, 1_000.0, 1_100.0, 5_000.0]


def ask(scene: Scene, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    response = scene.site.admin.post(f"{scene.runs}/estimate", json=spec or scene.spec())
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def measured(scene: Scene, rates: list[float] = RATES, **sections: Any) -> Work:
    """A run with a measured throughput of this many tokens per second."""
    work = scene.start(**sections)
    assert work.order("starting") == "go"
    work.begin()
    assert work.order("running") == "go"
    block = losses(1, len(rates))
    block["series"]["tokens_per_second"] = rates
    assert work.send(work.batch(metrics=[block])).status_code == 200
    return work


def test_figures_follow_from_the_spec(scene: Scene) -> None:
    found = ask(scene)
    spec = RunSpec.model_validate(scene.spec())
    parameters = count_parameters(spec.model, 257, spec.batch.sequence_tokens).total
    flops = 10 * spec.tokens_per_step * flops_per_token(spec.model, 257, spec.batch.sequence_tokens)
    assert found["parameters"] == parameters
    assert found["flops"] == pytest.approx(flops)
    assert found["petaflop_days"] == pytest.approx(flops / (1e15 * 86_400))
    assert found["checkpoint_bytes"] == 12 * parameters, "float32 weights and two moments"
    assert found["stored_bytes"] == 12 * parameters + 2 * parameters, "10 steps save once; the bf16 export"
    plan = scene.site.admin.post(f"{scene.runs}/plan", json=scene.spec()).json()
    assert found["memory_bytes"] == max(rank["total"] for rank in plan["memory"])
    assert found["storage"] == scene.site.admin.get(scene.site.path).json()["storage"]


def test_time_is_unknown_until_an_equal_workload_was_measured(scene: Scene) -> None:
    found = ask(scene)
    assert (found["measured"], found["seconds"], found["slot_hours"]) == (None, None, None)
    work = measured(scene)
    tokens = 10 * RunSpec.model_validate(scene.spec()).tokens_per_step
    found = ask(scene)
    assert found["measured"]["run"] == work.run_id
    assert found["seconds_at_peak"] is None, "it is measured now"
    assert found["measured"]["node"] == "node-a"
    assert found["measured"]["tokens_per_second"] == median(RATES)
    assert found["seconds"] == pytest.approx(tokens / 1_000)
    assert found["slot_hours"] == pytest.approx(tokens / 1_000 / 3_600)
    longer = ask(scene, scene.spec(steps=10_000, seed=3, optimizer={"learning_rate": 1e-4}))
    assert longer["seconds"] == pytest.approx(1_000 * found["seconds"]), "these do not change the speed"


def test_until_a_run_was_measured_there_is_the_time_at_the_peak_of_the_fastest_node(scene: Scene) -> None:
    """node-a computes 10¹¹ FLOP/s a slot in float32, and node-b, with one slot, twice as many."""
    spec = scene.spec(precision={"kind": "fp32"})
    found = ask(scene, spec)
    assert found["seconds"] is None
    assert found["seconds_at_peak"] == pytest.approx(found["flops"] / 1e11)
    fast = Agent.join(scene.site, "node-b", cpu_slots=1)
    fast.heartbeat(inventory=inventory(cpu_slots=1) | {"cpu_peak": {"fp32": 2e11, "bf16": 4e11}})
    assert ask(scene, spec)["seconds_at_peak"] == pytest.approx(found["flops"] / 2e11)
    two = ask(scene, scene.spec(2, precision={"kind": "fp32"}))
    assert two["seconds_at_peak"] == pytest.approx(two["flops"] / 1e11 / 2), "node-b has too few slots"
    on_gpu = scene.spec(precision={"kind": "bf16"}, resources={"device": "cuda"})
    assert ask(scene, on_gpu)["seconds_at_peak"] is None, "no node has a GPU"


def test_the_fastest_gpu_counts_and_one_whose_peak_is_unknown_leaves_the_time_unknown(scene: Scene) -> None:
    spec = scene.spec(precision={"kind": "bf16"}, resources={"device": "cuda"})
    mixed = _named_gpus("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
    Agent.join(scene.site, "node-g", gpus=2).heartbeat(inventory=mixed)
    found = ask(scene, spec)
    assert found["seconds_at_peak"] == pytest.approx(found["flops"] / 989e12)
    Agent.join(scene.site, "node-h", gpus=1).heartbeat(inventory=_named_gpus("Unknown GPU"))
    assert ask(scene, spec)["seconds_at_peak"] is None


def _named_gpus(*names: str) -> dict[str, Any]:
    found = inventory(gpus=len(names))
    for gpu, name in zip(found["gpus"], names, strict=True):
        gpu["name"] = name
    return found


def test_an_estimate_of_a_fork_counts_only_the_steps_after_its_start(scene: Scene) -> None:
    measured(scene)
    asked = scene.spec(steps=5_000, checkpoint={"every_steps": 100, "keep": 2})
    whole = ask(scene, asked)
    response = scene.site.admin.post(f"{scene.runs}/estimate", params={"begin_step": 4_900}, json=asked)
    assert response.status_code == 200, response.text
    fork = response.json()
    for name in ("flops", "petaflop_days", "seconds", "slot_hours"):
        assert fork[name] == pytest.approx(whole[name] / 50), name
    export = 2 * whole["parameters"]
    assert (whole["stored_bytes"] - export, fork["stored_bytes"] - export) == (
        2 * whole["checkpoint_bytes"],
        whole["checkpoint_bytes"],
    ), "one state of its own is saved"
    for name in ("parameters", "memory_bytes", "checkpoint_bytes", "measured"):
        assert fork[name] == whole[name], name


@pytest.mark.parametrize(
    ("begin_step", "field"), [(10, "schedule.steps"), (11, "schedule.steps"), (-1, "begin_step")]
)
def test_an_estimate_without_steps_is_refused(scene: Scene, begin_step: int, field: str) -> None:
    response = scene.site.admin.post(
        f"{scene.runs}/estimate", params={"begin_step": begin_step}, json=scene.spec()
    )
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, field), response.text


def test_a_run_has_its_flops_even_after_its_data_was_deleted(scene: Scene) -> None:
    work = measured(scene)
    before = scene.show(work.run_id)
    assert before["flops"] == ask(scene)["flops"] > 0
    scene.cancel(work.run_id)
    assert work.ended("cancelled") == "cancelled"
    assert scene.site.admin.delete(f"{scene.site.path}/datasets/{scene.dataset}").status_code == 204
    refused = scene.site.admin.post(f"{scene.runs}/estimate", json=before["spec"])
    assert refused.status_code == 422, "a submission is refused too"
    assert scene.show(work.run_id)["flops"] == before["flops"]
    (listed,) = scene.site.admin.get(scene.runs).json()["items"]
    assert listed["flops"] == before["flops"]


OTHERS: list[dict[str, Any]] = [
    {"model": {"layers": 3}},
    {"batch": {"sequence_tokens": 128}},
    {"batch": {"micro_sequences": 4}},
    {"batch": {"global_sequences": 128}},
    {"precision": {"kind": "fp32"}},
    {"memory": {"recompute": "full"}},
    {"slots": 2},
]


def test_a_different_workload_is_not_used_as_a_measurement(scene: Scene) -> None:
    measured(scene)
    assert ask(scene)["measured"] is not None
    for other in OTHERS:
        assert ask(scene, scene.spec(**other))["measured"] is None, other


def test_checkpoints_are_shown_with_files_and_count_towards_no_limit(scene: Scene) -> None:
    before = ask(scene)
    assert before["team_checkpoint_bytes"] == 0
    work = measured(scene)
    work.save(5)
    (state,) = scene.site.admin.get(f"{scene.runs}/{work.run_id}/checkpoints").json()
    after = ask(scene)
    assert after["team_checkpoint_bytes"] == state["bytes"] > 0
    assert after["storage"] == before["storage"], "files only"
    stranger = scene.site.other_team("globex")
    usages = [
        client.get(f"/api/v1/teams/{team}/usage").json()
        for client, team in ((scene.site.admin, scene.site.team), (stranger, "globex"))
    ]
    assert [usage["team_checkpoint_bytes"] for usage in usages] == [state["bytes"], 0]
    assert usages[0]["storage"] == before["storage"]


def test_earlier_runs_are_read_in_one_query_without_wide_columns(scene: Scene) -> None:
    def statements() -> list[str]:
        with sent_statements(scene.database.engine) as sent:
            assert ask(scene, scene.spec(memory={"recompute": "full"}))["measured"] is None
        return sent

    asked = []
    for _ in range(2):
        work = measured(scene)
        scene.cancel(work.run_id)
        work.ended("stopped")
        asked.append(statements())
    assert len(asked[0]) == len(asked[1]) > 0
    assert not any("placement.downloads" in item for item in asked[1])


def test_the_newest_run_counts_and_one_that_made_too_few_steps_does_not(scene: Scene) -> None:
    older = measured(scene)
    assert ask(scene)["measured"]["run"] == older.run_id
    newer = measured(scene, [2_000.0] * 5)
    assert ask(scene)["measured"]["run"] == newer.run_id
    scene.cancel(newer.run_id)
    assert newer.ended("cancelled") == "cancelled"
    measured(scene, [9_000.0] * 4)
    assert ask(scene)["measured"]["tokens_per_second"] == 2_000.0


def test_each_attempt_is_measured_in_its_own_layout(scene: Scene) -> None:
    tensor, pipeline = {"tensor": 2}, {"pipeline": 2}
    sections = {"model": {"layers": 4}, "batch": {"micro_sequences": 1, "global_sequences": 8}}
    work = measured(scene, slots=2, parallelism=tensor, **sections)
    work.save(5)
    response = scene.site.admin.put(f"{scene.runs}/{work.run_id}/layout", json={"parallelism": pipeline})
    assert response.status_code == 200, response.text
    assert ask(scene, scene.spec(2, parallelism=tensor, **sections))["measured"] is not None
    assert ask(scene, scene.spec(2, parallelism=pipeline, **sections))["measured"] is None
    assert ask(scene, scene.spec(2, **sections))["measured"] is None
    assert ask(scene, scene.spec(2, parallelism=tensor | {"data": 1}, **sections))["measured"] is not None


def test_runs_of_other_teams_are_not_used_as_measurements(scene: Scene) -> None:
    measured(scene)
    stranger = scene.site.other_team("globex")
    spec = scene.spec() | {"data": {"dataset": scene.dataset}}
    assert stranger.post("/api/v1/teams/globex/runs/estimate", json=spec).status_code == 422
    assert stranger.post(f"{scene.runs}/estimate", json=scene.spec()).status_code == 404
    assert scene.site.member("viewer").post(f"{scene.runs}/estimate", json=scene.spec()).status_code == 200


def test_a_measurement_counts_while_a_node_of_its_kind_is_joined(scene: Scene) -> None:
    work = measured(scene)
    assert work.ended("crashed") == "retry_wait"
    other = Agent.join(scene.site, "node-b")
    remove(scene, "node-a")
    assert ask(scene)["measured"]["node"] == "node-a", "node-b is of the same kind"
    change_inventory(scene, other, cpu_name="a faster CPU")
    assert ask(scene)["measured"] is None
    change_inventory(scene, other, cpu_name="a CPU", cores=16)
    assert ask(scene)["measured"] is None, "more threads a rank"


def test_nodes_with_too_few_slots_are_ignored(scene: Scene) -> None:
    work = measured(scene, slots=2)
    assert work.ended("crashed") == "retry_wait"
    Agent.join(scene.site, "node-b")
    remove(scene, "node-a")
    node = Agent(scene.agent.client, "node-b")
    assert ask(scene, scene.spec(2))["measured"] is not None
    change_inventory(scene, node, cpu_slots=1, cores=4)
    assert ask(scene, scene.spec(2))["measured"] is None


def test_an_estimate_refuses_what_a_submission_refuses(scene: Scene) -> None:
    spec = scene.spec(model={"width": 63})
    estimate, run = (
        scene.site.admin.post(path, json=spec) for path in (f"{scene.runs}/estimate", scene.runs)
    )
    assert (estimate.status_code, estimate.json()["errors"]) == (422, run.json()["errors"])


@pytest.mark.parametrize(
    "sections",
    [
        {"resources": {"device": "cpu", "slots_per_node": 16}},
        {"resources": {"device": "cpu", "nodes": 2}},
        {"resources": {"device": "cuda"}},
        {"model": {"layers": 1_000, "width": 65_536, "heads": 512}},
    ],
    ids=["slots", "nodes", "device", "memory"],
)
def test_a_run_that_no_node_could_run_has_an_estimate_and_a_plan(
    scene: Scene, sections: dict[str, Any]
) -> None:
    spec = scene.spec(**sections, batch={"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 16})
    check = scene.site.admin.post(f"{scene.runs}/validate", json=spec).json()
    assert not check["valid"] and check["problems"]
    assert check["spec"]["resources"]["slots_per_node"] == sections.get("resources", {}).get(
        "slots_per_node", 1
    )
    found = ask(scene, spec)
    assert found["parameters"] == check["parameters"]
    plan = scene.site.admin.post(f"{scene.runs}/plan", json=spec).json()
    assert found["memory_bytes"] == max(rank["total"] for rank in plan["memory"])


def test_a_spec_without_its_data_has_no_estimate(scene: Scene) -> None:
    spec = scene.spec(data={"dataset": "ds_none"}, resources={"device": "cuda"})
    check = scene.site.admin.post(f"{scene.runs}/validate", json=spec).json()
    assert (check["valid"], check["spec"]) == (False, None)
    assert [problem["field"] for problem in check["problems"]] == ["resources.device", "data.dataset"]
    assert scene.site.admin.post(f"{scene.runs}/estimate", json=spec).status_code == 422


def test_the_command_prints_the_estimate(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    show_estimate(RunEstimate.model_validate(ask(scene)))
    shown = capsys.readouterr().out
    assert "not measured yet; over " in shown and "its time at the nodes' peak" in shown
    assert "FLOP\n" in shown and "e+" not in shown, "no exponents"
    measured(scene)
    show_estimate(RunEstimate.model_validate(ask(scene)))
    assert "pilot reached 1,000 tokens/s on node-a" in capsys.readouterr().out


def remove(scene: Scene, name: str) -> None:
    [node] = [item for item in scene.site.admin.get("/api/v1/nodes").json() if item["name"] == name]
    assert scene.site.admin.delete(f"/api/v1/nodes/{node['id']}").status_code == 204


def change_inventory(scene: Scene, agent: Agent, **changes: Any) -> None:
    [node] = [item for item in scene.site.admin.get("/api/v1/nodes").json() if item["name"] == agent.name]
    with scene.database.write() as session:
        row = session.get_one(Node, parse_id("node", node["id"]))
        row.inventory = row.inventory | changes
