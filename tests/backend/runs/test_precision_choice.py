"""`precision.kind: auto` is chosen by the nodes' measured peaks when a run is submitted, and the run shows it."""

import pytest

from tests.backend.scripted_agent import Agent, Scene, inventory

FAST_BF16 = {"fp32": 1e11, "bf16": 4e11, "fp8": 4e11}
SLOW_BF16 = {"fp32": 1e11, "bf16": 1.2e11, "fp8": 1.2e11}
DOUBTED = {"fp32": 1e11, "bf16": 0.0, "fp8": 0.0}


def report(agent: Agent, peak: dict[str, float] | None) -> None:
    agent.heartbeat(inventory=inventory() | {"cpu_peak": peak})


def choices(scene: Scene, run_id: str) -> list[str]:
    events = scene.site.admin.get(f"{scene.runs}/{run_id}/events").json()
    return [event["message"] for event in events if event["type"] == "precision_chosen"]


@pytest.mark.parametrize(
    ("peak", "kind", "reason"),
    [
        (FAST_BF16, "bf16", "since a slot of node-a computes 400 GFLOP/s in bfloat16 and 100 in float32"),
        (SLOW_BF16, "fp32", "since bfloat16 is not known to be faster on node-a"),
        (DOUBTED, "fp32", "since bfloat16 is not known to be faster on node-a"),
        (None, "fp32", "since bfloat16 is not known to be faster on node-a"),
    ],
)
def test_auto_is_the_faster_format_of_the_nodes(
    scene: Scene, peak: dict[str, float] | None, kind: str, reason: str
) -> None:
    report(scene.agent, peak)
    auto = {"precision": {"kind": "auto"}}
    checked = scene.site.admin.post(f"{scene.runs}/validate", json=scene.spec(**auto)).json()
    assert (checked["valid"], checked["spec"]["precision"]["kind"]) == (True, kind)
    work = scene.start(**auto)
    assert scene.show(work.run_id)["spec"]["precision"]["kind"] == kind == work.claim.job.spec.precision.kind
    assert choices(scene, work.run_id) == [f"precision auto: {kind}, {reason}"]


def test_a_given_format_is_used_and_the_default_is_auto(scene: Scene) -> None:
    report(scene.agent, SLOW_BF16)
    given = scene.submit(precision={"kind": "bf16"})
    assert (scene.show(given)["spec"]["precision"]["kind"], choices(scene, given)) == ("bf16", [])
    spec = {name: value for name, value in scene.spec().items() if name != "precision"}
    checked = scene.site.admin.post(f"{scene.runs}/validate", json=spec).json()
    assert checked["spec"]["precision"]["kind"] == "fp32"


@pytest.mark.parametrize(("peak", "compile"), [(4e11, "auto"), (4e13, "off")])
def test_a_cpu_run_is_compiled_only_if_that_pays(scene: Scene, peak: float, compile: str) -> None:
    """At least 1e14 FLOPs per rank, which `auto` compiles, at 0.3 of the peak: 14 minutes or more, and 8 seconds."""
    report(scene.agent, {"fp32": peak, "bf16": peak, "fp8": peak})
    long: dict[str, dict[str, object]] = {
        "precision": {"kind": "bf16"},
        "schedule": {"steps": 1, "warmup_steps": 0},
    }
    checked = scene.site.admin.post(f"{scene.runs}/estimate", json=scene.spec(**long)).json()
    long["schedule"] = {"steps": round(1.1e14 / checked["flops"])}
    run_id = scene.submit(**long)
    assert scene.show(run_id)["spec"]["precision"]["compile"] == compile
    reason = "compile auto: off, since the run takes about 1 min and compilation 1 min"
    assert choices(scene, run_id) == ([] if compile == "auto" else [reason])
