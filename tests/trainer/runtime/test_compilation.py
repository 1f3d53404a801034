"""Compilation changes only speed, happens once for all blocks, and is refused where it is impossible."""

import shutil
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests.trainer.jobs import build_here, events, losses, train_here, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import CompileKind
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.loss import chunk_gradient, head_loss
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.residual_dtype import set_residual_dtype
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.compilation import can_compile, compile_blocks, compile_gradient
from trainwright_trainer.runtime.errors import BadJobError
from trainwright_trainer.training.build import build

CPU, GPU = torch.device("cpu"), torch.device("cuda")
B, T, V = 2, 32, 64
LAYERS = 3


@pytest.fixture(autouse=True)
def _forget() -> None:
    """Graphs are cached by code, not by model:
    without this, models of earlier tests would count as recompilations."""
    torch._dynamo.reset()
    counters.clear()


@pytest.mark.parametrize("device", [CPU, GPU])
def test_auto_compiles_nothing_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: torch.device
) -> None:
    _hide_compilers(monkeypatch, tmp_path)
    assert not can_compile(CompileKind.AUTO, device)


@pytest.mark.parametrize(("steps", "compiled_expected"), [(20, False), (10_000_000, True)])
def test_the_total_length_of_a_run_decides_even_if_it_is_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path, steps: int, compiled_expected: bool
) -> None:
    """10⁷ steps of 256 tokens at 6·26,000 FLOPs: 4·10¹⁴ on one thread."""
    seen = []
    monkeypatch.setattr(
        "trainwright_trainer.training.model_passes.compile_blocks", lambda *given: seen.append(given)
    )
    monkeypatch.setattr("trainwright_trainer.runtime.compilation.missing_toolchain", lambda device: None)
    build_here(write_job(tmp_path, data, precision={"kind": "bf16"}, schedule={"steps": steps}))
    assert bool(seen) is compiled_expected


class _Squared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x


def test_blocks_of_many_shapes_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler counts graphs by code, which all blocks share. Its own limit is 8."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 8)  # and restores it afterwards
    block = _Squared()
    compile_blocks([block])
    for length in range(1, 13):
        assert torch.equal(block(torch.full((length,), 2.0)), torch.full((length,), 4.0))
    assert counters["stats"]["unique_graphs"] == 12


def _begin(mesh: Mesh, job_file: Path) -> None:
    output_folder(job_file).mkdir(exist_ok=True)
    build(read_job(job_file), job_file, mesh)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    ("precision", "steps", "logged"),
    [
        ({"kind": "bf16"}, 10_000_000, True),
        ({"kind": "bf16"}, 20, False),
        ({"kind": "bf16", "compile": "off"}, 10_000_000, False),
    ],
    ids=["long", "short", "off"],
)
def test_a_zero_bubble_run_reports_that_it_is_not_compiled(
    tmp_path: Path, data: Path, precision: dict[str, str], steps: int, logged: bool
) -> None:
    """In its events, and only if it would be compiled with another schedule."""
    parallelism = {"pipeline": 2, "schedule": "zbv"}
    sections = {"precision": precision, "schedule": {"steps": steps}, "model": {"layers": 4}}
    job_file = write_job(tmp_path, data, 2, parallelism=parallelism, **sections)
    on_mesh(read_job(job_file).spec.degrees, _begin, job_file)
    remarks = [event["message"] for event in events(job_file, "note")]
    assert len(remarks) == logged
    assert all(remark.startswith("Blocks are not compiled: schedule zbv splits") for remark in remarks)


@pytest.mark.parametrize(("device", "word"), [(CPU, "a C\\+\\+ compiler"), (GPU, "a C compiler")])
def test_on_without_a_compiler_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: torch.device, word: str
) -> None:
    _hide_compilers(monkeypatch, tmp_path)
    with pytest.raises(BadJobError, match=rf"spec\.precision\.compile: on needs {word}.*or use off"):
        can_compile(CompileKind.ON, device)


def _hide_compilers(monkeypatch: pytest.MonkeyPatch, empty: Path) -> None:
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)


def _compiled_or_refused(test: Callable[..., None]) -> Callable[..., None]:
    """Where the machine has no compiler, only require that ``on`` reports it."""
    if shutil.which("g++"):
        return test

    @wraps(test)
    def refused(*_: object, **__: object) -> None:
        with pytest.raises(BadJobError, match="C\\+\\+ compiler"):
            can_compile(CompileKind.ON, CPU)

    return refused


@pytest.mark.slow(target="layouts")
@_compiled_or_refused
@pytest.mark.parametrize(
    ("kind", "in_bf16"),
    [(RecomputeKind.NONE, False), (RecomputeKind.SELECTIVE, True), (RecomputeKind.FULL, True)],
)
def test_blocks_are_compiled_once_and_compute_the_same(kind: RecomputeKind, in_bf16: bool) -> None:
    plain, compiled = _model(kind, in_bf16), _model(kind, in_bf16)
    compile_blocks(compiled.layers.values())
    loss, gradients = _learn(plain, in_bf16)
    other_loss, others = _learn(compiled, in_bf16)
    assert counters["stats"]["unique_graphs"] == 1
    # Fused code orders float32 sums of at most 4·D = 128 terms differently, and omits roundings to bfloat16.
    # A value meets about ten of them in each block forward, and as many backward. Rounding errors are
    # independent and add up in squares.
    roundings = 20 * LAYERS
    unit = roundings**0.5 * (2.0**-9 if in_bf16 else 128**0.5 * 2.0**-24)
    assert abs(other_loss - loss) <= unit * loss
    for name, gradient in gradients.items():
        assert (others[name] - gradient).norm() <= unit * gradient.norm(), name


def _model(kind: RecomputeKind, in_bf16: bool) -> Transformer:
    spec = ModelSpec(layers=LAYERS, width=32, heads=4, kv_heads=2)
    model = Transformer(spec, V, T)
    initialize(model, spec, seed=1)
    recompute(model, MemorySpec(recompute=kind))
    if in_bf16:
        set_residual_dtype(model, torch.bfloat16)
    return model


def _learn(model: Transformer, in_bf16: bool) -> tuple[float, dict[str, Tensor]]:
    tokens, targets = torch.randint(V, (2, B, T), generator=torch.Generator().manual_seed(5))
    with torch.autocast("cpu", torch.bfloat16, enabled=in_bf16):
        loss = head_loss(model.features(tokens), model.head.weight, targets, B * T)
    loss.backward()
    return loss.item(), {
        name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }


@pytest.mark.slow(target="layouts")
@_compiled_or_refused
def test_a_compiled_run_learns_what_an_eager_one_does(tmp_path: Path, data: Path) -> None:
    """Runs complete jobs, with recomputation and a loss in chunks."""
    nano = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2}
    sections = {
        "model": nano,
        "batch": {"micro_sequences": 8, "global_sequences": 8},
        "memory": {"recompute": "selective", "loss_chunk_tokens": 128},
        "schedule": {"steps": 10, "warmup_steps": 2},
        "validation": {"every_steps": 10, "sequences": 8},
    }
    eager = write_job(tmp_path / "eager", data, precision={"kind": "bf16", "compile": "off"}, **sections)
    compiled = write_job(tmp_path / "compiled", data, precision={"kind": "bf16", "compile": "on"}, **sections)
    train_here(eager)
    train_here(compiled)
    # A logit meets some 20 roundings to bfloat16 in each of two blocks and is below 4 here. A loss moves by
    # no more than a logit does, and ten small updates from gradients with the same errors do not add to that.
    bound = 4 * (20 * 2) ** 0.5 * 2.0**-9
    for one, other in zip(losses(eager), losses(compiled), strict=True):
        assert one == pytest.approx(other, abs=bound)
    [one], [other] = (
        [event["values"]["validation_loss"] for event in events(job, "validation")]
        for job in (eager, compiled)
    )
    assert one == pytest.approx(other, abs=bound)
    assert (
        losses(compiled)[-1] < losses(compiled)[0] - 4 * bound
    )  # the run learned more than the bound allows


@pytest.mark.slow(target="layouts")
@_compiled_or_refused
def test_a_compiled_loss_chunk_computes_the_same() -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(20, V).bfloat16(), torch.randint(V, (20,))
    loss, gradient = chunk_gradient(logits, targets, 60)
    other_loss, other = compile_gradient(chunk_gradient)(logits, targets, 60)
    # Both sum V terms in float32, each in its own order; a value may then round to bfloat16's other
    # neighbour, which is at most 2⁻⁷ of the value away.
    assert other_loss.item() == pytest.approx(loss.item(), rel=V * 2.0**-24)
    assert other.dtype == torch.bfloat16
    assert ((other.float() - gradient.float()).abs() <= 2.0**-7 * gradient.float().abs()).all()
