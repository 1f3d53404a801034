"""A run is planned on hardware that no node has: memory by the plan's formulas, an estimated time, and refusals that name
the remedy."""

from typing import Any

import pytest

from tests.backend.scripted_agent import Scene
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.flops import training_flops
from trainwright.planner.gpus import gpu_models

H100, A100, RTX_4090 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090"
SEVEN_B = {"layers": 32, "width": 4_096, "heads": 32, "kv_heads": 8, "feed_forward": 14_336}
BATCH = {"sequence_tokens": 2_048, "micro_sequences": 1, "global_sequences": 64}
BF16 = {"precision": {"kind": "bf16"}}


def ask(scene: Scene, gpu: str, gpus: int, nodes: int = 1, **sections: Any) -> Any:
    spec = scene.spec() | {"batch": BATCH} | BF16 | sections
    spec["resources"] = {"device": "cuda", "nodes": nodes, "slots_per_node": gpus}
    return scene.site.admin.post(f"{scene.runs}/what-if", params={"gpu": gpu}, json=spec)


def estimate(scene: Scene, gpu: str, gpus: int, nodes: int = 1, **sections: Any) -> Any:
    found = ask(scene, gpu, gpus, nodes, **sections)
    assert found.status_code == 200, found.text
    return found.json()


def test_no_node_needs_to_have_the_hardware(scene: Scene) -> None:
    found = estimate(scene, H100, 8, nodes=4)
    assert (found["nodes"], found["slots_per_node"], found["gpu"]["name"]) == (4, 8, H100)
    assert len(found["plan"]["ranks"]) == 32
    assert found["plan"]["too_large"] is None


@pytest.mark.parametrize(
    ("gpu", "gpus", "zero_stage", "fits"),
    [
        # 7e9 weights take 16 bytes each with gradients and moments: 104 GiB on one rank, 13 GiB on each of 8 that
        # shard.
        (H100, 8, 0, False),
        (H100, 8, 3, True),
        (A100, 8, 3, True),
        (RTX_4090, 1, 0, False),
    ],
)
def test_whether_a_large_model_fits(scene: Scene, gpu: str, gpus: int, zero_stage: int, fits: bool) -> None:
    sections = {"model": SEVEN_B, "parallelism": {"zero_stage": zero_stage}, "memory": {"recompute": "full"}}
    found = estimate(scene, gpu, gpus, **sections)
    assert (found["plan"]["too_large"] is None) is fits
    if not fits:
        assert "zero_stage" in found["plan"]["too_large"]


def test_the_time_is_the_flops_at_the_assumed_fraction_of_the_vendors_peak(scene: Scene) -> None:
    found = estimate(scene, H100, 8)
    spec = RunSpec.model_validate(scene.spec() | {"batch": BATCH} | BF16)
    assert found["flops"] == training_flops(spec, 0)
    assert found["seconds"] == pytest.approx(found["flops"] / (8 * 989e12 * found["assumed_mfu"]))
    assert estimate(scene, A100, 8)["seconds"] == pytest.approx(found["seconds"] * 989 / 312)


def test_fp8_is_refused_on_a_gpu_without_it(scene: Scene) -> None:
    model = {"layers": 2, "width": 128, "heads": 4, "kv_heads": 4, "feed_forward": 256}
    fp8 = {"precision": {"kind": "fp8"}, "model": model}
    refused = ask(scene, A100, 8, **fp8)
    assert refused.status_code == 422
    (problem,) = refused.json()["errors"]
    assert problem["field"] == "precision.kind" and "8.9 or newer" in problem["message"]
    assert estimate(scene, H100, 8, **fp8)["seconds"] is not None


def test_fp8_is_not_twice_as_fast_as_bf16(scene: Scene) -> None:
    """Its matmuls are twice as fast; the rest of a step is not."""
    model = {"layers": 2, "width": 128, "heads": 4, "kv_heads": 4, "feed_forward": 256}
    bf16, fp8 = (estimate(scene, H100, 8, model=model, precision={"kind": kind}) for kind in ("bf16", "fp8"))
    assert bf16["seconds"] / fp8["seconds"] == pytest.approx(1.25, abs=0.01)


def test_auto_precision_is_bfloat16(scene: Scene) -> None:
    chosen, automatic = (estimate(scene, H100, 8, precision={"kind": kind}) for kind in ("bf16", "auto"))
    assert automatic == chosen


def test_a_layout_that_does_not_divide_the_batch_is_refused_at_its_field(scene: Scene) -> None:
    refused = ask(scene, H100, 8, batch=BATCH | {"global_sequences": 12})
    assert refused.status_code == 422
    assert "nearest" in refused.json()["errors"][0]["message"]


def test_an_unknown_gpu_is_refused_with_the_known_ones(scene: Scene) -> None:
    refused = ask(scene, "NVIDIA H1000", 8)
    assert refused.status_code == 422
    assert H100 in refused.json()["errors"][0]["message"]


def test_every_listed_gpu_has_figures(scene: Scene) -> None:
    listed = scene.site.admin.get("/api/v1/spec").json()["gpus"]
    assert [gpu["name"] for gpu in listed] == [gpu.name for gpu in gpu_models()]
    assert all(gpu["peaks"]["bf16"] > 0 and gpu["memory_bytes"] > 20 * 2**30 for gpu in listed)
    has_fp8 = {gpu["name"]: "fp8" in gpu["peaks"] for gpu in listed}
    assert has_fp8[H100] and not has_fp8[A100]
