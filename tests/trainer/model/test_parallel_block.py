"""A parallel block computes PaLM's formula, learns the same in every layout, and halves what tensor ranks send."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import one_step, start
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.rotary import rotate
from trainwright_trainer.model.transformer import ParallelBlock, Transformer

SPEC = ModelSpec(layers=2, width=32, heads=4, kv_heads=2, block="parallel", initializer_std=0.2)
B, T, V = 2, 16, 64


def _model(spec: ModelSpec = SPEC) -> Transformer:
    model = Transformer(spec, V, T)
    initialize(model, spec, seed=1)
    return model


def _formula(weights: dict[str, Tensor], x_BTD: Tensor, model: Transformer) -> Tensor:
    """x + attention(norm(x)) + feed_forward(norm(x)), from the block's weights."""
    h = x_BTD / (x_BTD.pow(2).mean(-1, keepdim=True) + SPEC.norm_epsilon).sqrt() * weights["norm.weight"]
    q, k, v = (
        (h @ weights[f"attention.{name}.weight"].t()).unflatten(-1, (-1, 8)).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    q, k = (rotate(each, model.cosines, model.sines) for each in (q, k))
    mixed = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)
    gate, up = (h @ weights[f"feed_forward.{name}.weight"].t() for name in ("gate", "up"))
    down = (silu(gate) * up) @ weights["feed_forward.down.weight"].t()
    return x_BTD + mixed @ weights["attention.output.weight"].t() + down


def test_a_block_computes_the_formula() -> None:
    model = _model()
    block = model.layers["0"]
    assert isinstance(block, ParallelBlock)
    with torch.no_grad():
        block.norm.weight.uniform_(0.5, 1.5)
        x_BTD = torch.randn(B, T, SPEC.width, generator=torch.Generator().manual_seed(2))
        wanted = _formula(dict(block.named_parameters()), x_BTD, model)
        assert (block(x_BTD, model.tables(x_BTD.shape[1], x_BTD.dtype)) - wanted).abs().max() < 1e-4
        serial = x_BTD + block.attention(block.norm(x_BTD), model.tables(x_BTD.shape[1], x_BTD.dtype))
        serial = serial + block.feed_forward(block.norm(serial))
        assert (serial - wanted).abs().max() > 1e-2, "the formula must differ from that of a serial block"


@pytest.mark.parametrize("kind", [RecomputeKind.FULL, RecomputeKind.SELECTIVE])
def test_recomputation_changes_no_bit(kind: RecomputeKind) -> None:
    results = []
    for chosen in (RecomputeKind.NONE, kind):
        model = _model()
        recompute(model, MemorySpec(recompute=chosen))
        logits = model(torch.arange(B * T).view(B, T) % V)
        logits.square().mean().backward()
        results.append([logits, *(weight.grad for weight in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def learn(mesh: Mesh, job_files: dict[str, Path]) -> dict[str, list[float]]:
    """Losses and norms of three steps of each job."""
    results = {}
    for name, job_file in job_files.items():
        training = start(mesh, job_file)
        steps = [one_step(training, number) for number in (1, 2, 3)]
        results[name] = [figure for step in steps for figure in (step.loss, step.grad_norm)]
    return results


PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {"kind": "fp32"},
    "fp8": {"kind": "fp8", "compile": "off", "fp8": {"level": "O2", "scaling": "tensor"}},
}

LAYOUTS: dict[str, tuple[Degrees, dict[str, Any]]] = {
    "tensor 2": (Degrees(tensor=2), {"tensor": 2}),
    "tensor 2, 2 chunks": (Degrees(tensor=2), {"tensor": 2, "tensor_chunks": 2}),
    "pipeline 2": (Degrees(pipeline=2), {"pipeline": 2}),
    "ZeRO 3 over 2": (Degrees(shard=2), {"zero_stage": 3}),
}

FP32_BOUND = 20 * 256 * 2.0**-24
"""About ten matmuls are computed in sequence in each of two layers, sums of at most 256 tokens."""


def _jobs(
    folder: Path, data: Path, ranks: int, precisions: dict[str, Any], **parallelism: Any
) -> dict[str, Path]:
    model = {"block": "parallel", "width": 64, "initializer_std": 0.1}
    return {
        kind: write_job(
            folder / f"{ranks}-{kind}",
            data,
            ranks,
            model=model,
            parallelism=parallelism,
            precision=precision,
        )
        for kind, precision in precisions.items()
    }


def _apart(result: list[float], other: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(result, other, strict=True))


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_learn_what_one_process_does(layout: str, tmp_path: Path, data: Path) -> None:
    """In FP8, ranks round differently from one process, by less than the difference between FP8 and bfloat16."""
    degrees, parallelism = LAYOUTS[layout]
    bf16 = {"bf16": {"kind": "bf16", "compile": "off"}}
    alone = _jobs(tmp_path, data, 1, PRECISIONS | bf16)
    (one,) = on_mesh(Degrees(), learn, alone)
    # ZeRO shards what FP8 has in its own formats, so it has no FP8 runs.
    precisions = {"fp32": PRECISIONS["fp32"]} if "zero_stage" in parallelism else PRECISIONS
    for result in on_mesh(degrees, learn, _jobs(tmp_path, data, 2, precisions, **parallelism)):
        assert _apart(result["fp32"], one["fp32"]) <= FP32_BOUND
        if "fp8" in result:
            assert _apart(result["fp8"], one["fp8"]) <= _apart(one["fp8"], one["bf16"])


def _counted(mesh: Mesh, job_file: Path) -> Counter[str]:
    """Collectives of the blocks in one micro batch, forward and backward, and their elements."""
    training = start(mesh, job_file)
    counts: Counter[str] = Counter()

    def counting(name: str, right: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def called(axis: Axis, tensor: Tensor) -> Tensor:
            if tensor.ndim == 2 and tensor.shape[1] == training.spec.model.width:
                counts[name] += 1
                counts[f"elements of {name}"] += tensor.numel()
            return right(axis, tensor)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name in ("all_gather", "reduce_scatter"):
            patch.setattr(Axis, name, counting(name, getattr(Axis, name)))
        one_step(training, 1)
    return counts


def test_tensor_ranks_send_half_of_what_serial_blocks_do(tmp_path: Path, data: Path) -> None:
    found = {}
    for block in ("serial", "parallel"):
        job_file = write_job(
            tmp_path / block,
            data,
            2,
            model={"layers": 2, "block": block},
            parallelism={"tensor": 2},
            batch={"micro_sequences": 8},
        )
        (found[block], _) = on_mesh(Degrees(tensor=2), _counted, job_file)
    # Outside blocks, the embedding's output is scattered and its gradient gathered; the head's input in reverse.
    outside = 2
    for kind in ("all_gather", "reduce_scatter"):
        serial, parallel = (found[block][kind] - outside for block in ("serial", "parallel"))
        assert (serial, parallel) == (2 * 2 * 2, 2 * 2), kind
