"""FP8 over the tensor axis: tokens are gathered as codes,
equal to those of one process, in half the bytes."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.selection import partly_slow
from tests.trainer.jobs import write_job
from tests.trainer.parallel.tensor.test_tensor_parallel import validated
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import one_step, start
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.data.loader import read_batches
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute.casting import cast_per_tensor
from trainwright_trainer.fp8.compute.formats import E4M3, widen
from trainwright_trainer.fp8.compute.linear import FP8Linear, InputCast
from trainwright_trainer.parallel.tensor import fp8_gather
from trainwright_trainer.parallel.tensor.fp8_gather import GatheringInputCast
from trainwright_trainer.runtime.compilation import compile_blocks

B, T, D = 2, 8, 16

MODEL: dict[str, Any] = {
    "layers": 3,
    "width": 64,
    "heads": 8,
    "kv_heads": 4,
    "head_size": 16,
    "feed_forward": 128,
}
OPTIMIZER = {"learning_rate": 3e-3, "epsilon": 1e-3}
"""With AdamW's usual epsilon, weights with almost zero gradients move by the full rate
in whichever direction noise points."""

BATCH = {"sequence_tokens": 64, "micro_sequences": 4, "global_sequences": 8}


def _input(case: str) -> Tensor:
    torch.manual_seed(0)
    x = torch.randn(B, T, D).bfloat16()
    x[1, 6] *= 100  # the second half of the tokens is far larger than the first
    if case == "not finite":
        x[0, 1, 3] = torch.nan
    return x


def gather_codes(mesh: Mesh, case: str, fault: str | None = None) -> dict[str, Tensor]:
    axis = mesh.tensor
    if fault == "a rank's own amax":
        Axis.all_reduce_max = lambda self, tensor: tensor
    if fault == "a rank's own gradient":
        fp8_gather.reduce_scatter_tensor = lambda whole, axis: (
            whole.flatten(0, 1).chunk(axis.ranks)[axis.rank].view(B, -1, D)
        )
    part = _input(case).flatten(0, 1).chunk(axis.ranks)[axis.rank].view(B, -1, D).requires_grad_()
    cast = GatheringInputCast(InputCast(ScalingKind.TENSOR, torch.device("cpu")), axis)
    cast.delayed.fill_(_delayed(case))
    stand_in = cast.all_gather(part)
    codes, scale = cast(stand_in).rows
    (stand_in * (axis.rank + 1)).sum().backward()
    assert part.grad is not None and stand_in.untyped_storage().nbytes() == 2
    return {
        "codes": codes.view(torch.uint8),
        "scale": scale,
        "amax": cast.amax,
        "gradient": part.grad,
    }


def _delayed(case: str) -> float:
    return 0.25 if case == "delayed" else 0.0


def _check_codes(results: list[dict[str, Tensor]], case: str) -> None:
    (codes, scale), amax = cast_per_tensor(_input(case).flatten(0, 1), E4M3, torch.tensor(_delayed(case)))
    for result in results:
        assert torch.equal(result["scale"], scale) or case == "not finite"
        assert torch.equal(result["amax"], amax)
        assert bool(result["scale"].isnan()) is (case == "not finite")
        if case != "not finite":
            assert torch.equal(result["codes"], codes.view(torch.uint8))
        assert result["gradient"].unique().tolist() == [1 + 2]


@pytest.mark.parametrize("case", ["present", "delayed", "not finite"])
def test_gathered_codes_are_those_of_one_process(case: str) -> None:
    _check_codes(on_mesh(Degrees(tensor=2), gather_codes, case), case)


@pytest.mark.parametrize("fault", ["a rank's own amax", "a rank's own gradient"])
def test_a_collective_left_out_of_the_gather_is_detected(fault: str) -> None:
    results = on_mesh(Degrees(tensor=2), gather_codes, "present", fault)
    with pytest.raises(AssertionError):
        _check_codes(results, "present")


def test_casting_decoded_values_again_changes_nothing() -> None:
    """A layer that cast the gathered bfloat16 values would multiply the same numbers,
    so codes may be gathered instead."""
    x = _input("present")
    once = cast_per_tensor(x.flatten(0, 1), E4M3, torch.zeros(())).operand
    numbers = widen(once.codes, torch.bfloat16) * once.scale.bfloat16()
    again = cast_per_tensor(numbers, E4M3, torch.zeros(())).operand
    assert torch.equal(widen(again.codes, torch.float32) * again.scale, numbers.float())
    assert not torch.equal(numbers, x.flatten(0, 1))


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def write(degrees: Degrees, level: str | None, **sections: Any) -> Path:
        fp8 = {"kind": "fp8", "fp8": {"level": level, "scaling": "tensor"}}
        precision = {"compile": "off"} | (fp8 if level else {"kind": "bf16"})
        sections = {"model": MODEL, "batch": BATCH, "optimizer": OPTIMIZER, "precision": precision} | sections
        return write_job(
            tmp_path_factory.mktemp("job"),
            data,
            degrees.ranks,
            parallelism={"tensor": degrees.tensor},
            **sections,
        )

    return write


def gathered_bytes(mesh: Mesh, job_file: Path) -> dict[torch.dtype, int]:
    """What this rank sends to others in the forward passes of blocks, by number format."""
    training = start(mesh, job_file)
    given: dict[torch.dtype, int] = {}
    right = Axis.all_gather

    def counting(self: Axis, part: Tensor) -> Tensor:
        given[part.dtype] = given.get(part.dtype, 0) + part.nbytes
        return right(self, part)

    Axis.all_gather = counting
    (batch, *_) = training.loader.micro_batches(1)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, training.spec.precision.fp8 is None):
        training.engine.model.features(batch.tokens)
    return given


def test_codes_take_half_the_bytes(job: Callable[..., Path]) -> None:
    degrees = Degrees(tensor=2)
    for high, low in zip(
        on_mesh(degrees, gathered_bytes, job(degrees, None)),
        on_mesh(degrees, gathered_bytes, job(degrees, "O2")),
        strict=True,
    ):
        assert high.keys() == {torch.bfloat16} and low.keys() == {torch.uint8}
        assert 2 * low[torch.uint8] == high[torch.bfloat16] == 2 * 3 * 2 * 4 * 64 * 64 // 2


def learn_fp8(mesh: Mesh, job_file: Path) -> list[float]:
    """Losses of five steps, their gradients' norms, and the validation loss after them."""
    training = start(mesh, job_file)
    numbers = [one_step(training, step) for step in range(1, 6)]
    batches = read_batches(training.validation, validated(mesh), training.spec.batch.micro_sequences)
    return [number.loss for number in numbers] + [training.engine.mean_loss(batches)]


@pytest.fixture(scope="module")
def alone(job: Callable[..., Path]) -> Callable[[str | None], list[float]]:
    """One process, in bfloat16 (None) or at an FP8 level."""

    @cache
    def run(level: str | None) -> list[float]:
        (result,) = on_mesh(Degrees(), learn_fp8, job(Degrees(), level))
        assert isinstance(result, list)
        return result

    return run


CASES = {
    "O1, tensor 2": (Degrees(tensor=2), "O1", {}),
    "O2, tensor 4, chunks": (Degrees(tensor=4), "O2", {"memory": {"loss_chunk_tokens": 128}}),
    "O3, data 2, tensor 2": (Degrees(replicas=2, tensor=2), "O3", {}),
}


@pytest.mark.parametrize("case", partly_slow(CASES, []))
def test_ranks_learn_what_one_process_does(
    case: str, job: Callable[..., Path], alone: Callable[[str | None], list[float]]
) -> None:
    degrees, level, sections = CASES[case]
    results = on_mesh(degrees, learn_fp8, job(degrees, level, **sections))
    wanted = alone(level)
    # Partial matmuls are rounded to bfloat16 before they are summed, which changes some of the later
    # roundings to FP8: at most as much noise as those roundings cause themselves, compared with bfloat16.
    noise = max(abs(one - other) for one, other in zip(wanted, alone(None), strict=True))
    assert noise < 0.1
    for rank in results:
        assert rank == results[0]
        assert max(abs(one - other) for one, other in zip(rank, wanted, strict=True)) <= noise


@pytest.mark.parametrize("recompute", partly_slow(["full", "selective"], []))
def test_recomputation_changes_no_bit(recompute: str, job: Callable[..., Path]) -> None:
    """Memory that recomputation gathers again is freed too."""
    degrees = Degrees(tensor=2)
    plain, again = (
        on_mesh(degrees, learn_fp8, job(degrees, "O2", memory={"recompute": kind}))
        for kind in ("none", recompute)
    )
    assert plain == again


def trace(mesh: Mesh, job_file: Path) -> tuple[Tensor, Tensor]:
    """The output of a block in eager mode, and of its trace as one graph, executed operation by operation."""
    training = start(mesh, job_file)
    model = training.engine.model
    x = torch.randn(2, 32, training.spec.model.width, generator=torch.Generator().manual_seed(0)).bfloat16()
    given = x.requires_grad_(), model.tables(len(model.cosines), x.dtype)
    block = model.layers["1"]
    plain: Tensor = block(*given).detach()
    with patch.object(torch, "compile", partial(torch.compile, backend="eager")):
        compile_blocks(model.layers.values())
        return plain, block(*given).detach()


@pytest.mark.slow(target="layouts")
def test_a_graph_contains_the_gathers_of_both_passes(job: Callable[..., Path]) -> None:
    """The checkpoint around a block is in its graph too."""
    degrees = Degrees(tensor=2)
    for plain, traced in on_mesh(degrees, trace, job(degrees, "O2", memory={"recompute": "full"})):
        assert torch.equal(plain, traced)


def kept(mesh: Mesh, job_file: Path) -> tuple[int, int]:
    """Inputs of layers that are gathered, and the number of those that still exist after a step."""
    training = start(mesh, job_file)
    one_step(training, 1)
    casts = {layer.input_cast for layer in training.engine.model.modules() if isinstance(layer, FP8Linear)}
    gathered = [cast for cast in casts if isinstance(cast, GatheringInputCast)]
    return len(gathered), sum(cast.full_input is not None for cast in gathered)


@pytest.mark.slow(target="layouts")
def test_gathered_tensors_are_freed_after_their_layers(job: Callable[..., Path]) -> None:
    degrees = Degrees(tensor=2)
    results = on_mesh(degrees, kept, job(degrees, "O2", memory={"recompute": "full"}))
    assert results == [(2 * MODEL["layers"], 0)] * 2
