"""The program of a training step on a GPU, as far as tracing shows it: its counts must not change.

``make bench-dry`` traces it and lets Inductor write the kernels, which needs Triton; ``make test`` checks the table only.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import cpu
from tests.benchmarks.gpu_program import record, row
from tests.benchmarks.gpu_program.h200 import compile_library
from tests.benchmarks.gpu_program.row import run_process
from tests.benchmarks.harness.triton_wheel import triton_folder
from tests.benchmarks.report import table
from trainwright_trainer.runtime.errors import BadJobError

dry_run = pytest.mark.slow(target="bench-dry")

LITERAL_NAN = """
import torch
from trainwright_trainer.fp8.compute import casting
casting._or_nan = lambda scale, amax: torch.where(torch.isfinite(amax), scale, torch.nan)
"""

CAST_FOR_EACH_LAYER = """
from trainwright_trainer.fp8.compute import conversion
real = conversion.FP8Linear
def alone(weight, cast):
    return real(weight, conversion.InputCast(cast.scaling, weight.handle.device, of_norm=cast._of_norm))
conversion.FP8Linear = alone
"""

WEIGHTS_CAST_IN_EACH_MICRO_BATCH = """
from trainwright_trainer.fp8.state import updater
updater.keeps_weight_operands = lambda spec: False
"""

WIDER = """
from tests.benchmarks.gpu_program import process
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import BatchSpec
model = ModelSpec(layers=1, width=1024, heads=8, feed_forward=2816, tied_embeddings=False)
process.TOY = process.Shape(model, 512, BatchSpec(sequence_tokens=1024, micro_sequences=1, global_sequences=8))
process.MICRO_BATCHES = 2
"""

TRANSPOSED_BY_THE_COMPILER = """
from trainwright_trainer.fp8.compute import linear
linear.transpose = lambda codes, after: codes.t().contiguous()
"""

READ_IN_EACH_MICRO_BATCH = """
from trainwright_trainer.training.forward_backward import GradientAccumulation
real = GradientAccumulation._loss
def reading(self, batch):
    loss = real(self, batch)
    print(float(loss))
    return loss
GradientAccumulation._loss = reading
"""

READ_ONCE_MORE_IN_A_STEP = """
from trainwright_trainer.training.engine import TorchEngine
real = TorchEngine._sum_identical
def reading(self, sums):
    print(sums[0].item())
    return real(self, sums)
TorchEngine._sum_identical = reading
"""

BREAK_IN_A_BLOCK = """
import torch
from trainwright_trainer.model.feed_forward import FeedForward
real = FeedForward.forward
def breaking(self, x):
    torch._dynamo.graph_break()
    return real(self, x)
FeedForward.forward = breaking
"""

READ_IN_A_BLOCK = """
from trainwright_trainer.model.feed_forward import FeedForward
real = FeedForward.forward
def reading(self, x):
    return real(self, x) if float(x.sum()) > 0 else x
FeedForward.forward = reading
"""

OPERAND_BY_ROWS = """
import torch
from trainwright_trainer.fp8.compute import matmul
matmul._scaled_mm = lambda a, b, scale_a, scale_b, out, fast: torch._scaled_mm(
    a, b.t().contiguous(), scale_a, scale_b, out_dtype=out, use_fast_accum=fast
)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("h200"))


BLOCKS_ALONE = """
from trainwright_trainer.runtime import compilation
compilation.fuse_on_gpu = lambda function, device: function
"""
"""Compiling the optimizer's functions takes longer than everything else."""


def traced(library: Path, precision: str, plant: str, triton: Path | None = None) -> dict[str, Any]:
    return run_process("toy", [precision], library, triton, BLOCKS_ALONE + plant)[precision]


@dry_run
def test_a_step_stays_on_the_device_and_casts_what_layers_share_once(library: Path) -> None:
    found = run_process("toy", ["bf16", "fp8-tensor"], library, plant=BLOCKS_ALONE)
    stops = {name: (one["graph_breaks"], one["host_syncs"]) for name, one in found.items()}
    assert stops == {
        "bf16": (0, 2),
        "fp8-tensor": (0, 1),
    }  # the metrics; bfloat16 clips by a norm that the host reads
    assert {name: one["shared_input_casts"] for name, one in found.items()} == {"bf16": 0, "fp8-tensor": 2}
    assert found["fp8-tensor"]["scaled_matmuls"] == 21
    assert {name: one["weight_casts"] for name, one in found.items()} == {"bf16": 0, "fp8-tensor": 0}
    assert found["bf16"]["summing_matmuls"] == 7
    assert {one["attention"] for one in found.values()} == {"cudnn"}


LEFT_TO_AUTOGRAD = """
from trainwright_trainer.training import model_passes
model_passes.sums_in_matmuls = lambda spec: False
"""


@dry_run
def test_the_functions_of_the_optimizer_compile_without_a_break(library: Path) -> None:
    found = run_process("toy", ["fp8-tensor", "fp8-row"], library)
    assert {one["graph_breaks"] for one in found.values()} == {0}


@dry_run
def test_additional_casts_and_reads_are_counted(library: Path) -> None:
    assert traced(library, "bf16", READ_IN_EACH_MICRO_BATCH)["host_syncs"] == 10
    assert traced(library, "bf16", READ_ONCE_MORE_IN_A_STEP)["host_syncs"] == 3
    assert traced(library, "fp8-tensor", LITERAL_NAN)["shared_input_casts"] == 5
    assert traced(library, "fp8-tensor", CAST_FOR_EACH_LAYER)["shared_input_casts"] == 5
    assert traced(library, "fp8-tensor", WEIGHTS_CAST_IN_EACH_MICRO_BATCH)["weight_casts"] == 7
    autograd = traced(library, "bf16", LEFT_TO_AUTOGRAD)
    assert (autograd["weight_casts"], autograd["summing_matmuls"]) == (7, 0)


@dry_run
def test_a_transpose_that_is_stored_byte_by_byte_is_counted(library: Path) -> None:
    triton = triton_folder(create=False)
    assert traced(library, "fp8-tensor", WIDER, triton)["block_scattered_mb"] == 0
    found = traced(library, "fp8-tensor", WIDER + TRANSPOSED_BY_THE_COMPILER, triton)
    assert found["block_scattered_mb"] == pytest.approx(1_024 * 2_816 / 1e6)  # of the gated product


@dry_run
@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (READ_IN_A_BLOCK, "data-dependent expression"),
        (BREAK_IN_A_BLOCK, "User-inserted graph break"),
        (OPERAND_BY_ROWS, "col_major"),
    ],
)
def test_a_step_that_would_fail_or_wait_on_a_gpu_is_detected(library: Path, plant: str, says: str) -> None:
    with pytest.raises(BadJobError, match=says):
        traced(library, "fp8-tensor", plant)


def test_the_table_shows_the_first_and_the_last_record(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    assert "Nothing is recorded" in record.tables(file)
    figures = record.records()[0]["figures"]
    record.append(figures, {}, file)
    figures["7b"]["fp8-tensor"]["saved_bytes"] = 1.0
    record.append(figures, {}, file)
    (line,) = (one for one in record.tables(file).splitlines() if one.startswith("| 7b | fp8-tensor"))
    assert " → 1 |" in line


def test_a_part_of_the_row_is_recorded_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = record.records()[0]["figures"]
    recorded: list[record.Figures] = []
    for name in ("triton_folder", "compile_library", "kernel_resources"):
        monkeypatch.setattr(row, name, lambda *_, **__: {})
    monkeypatch.setattr(row, "run_process", lambda size, names, *_: {names[0]: first[size][names[0]]})
    monkeypatch.setattr(record, "append", lambda figures, _: recorded.append(figures))
    monkeypatch.setattr(table, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(table, "page", str)
    file = tmp_path / "bench.json"
    part = ["--sizes", "1.3b", "7b", "--precisions", "bf16", "fp8-row"]
    assert cpu.main(["gpu-program", *part, "--json", str(file)]) == 0
    (figures,) = recorded
    assert {size: list(found) for size, found in figures.items()} == {
        "1.3b": ["bf16", "fp8-row"],
        "7b": ["bf16", "fp8-row"],
    }
    assert "gpu-program-7b-fp8-row-step" in json.loads(file.read_text())


@dry_run
def test_the_row_writes_entries_and_records_nothing_at_toy_size(tmp_path: Path) -> None:
    before = record.RECORD.read_bytes()
    file = tmp_path / "bench.json"
    assert cpu.main(["gpu-program", "--toy", "--json", str(file)]) == 0
    entries = json.loads(file.read_text())
    assert {"gpu-program-toy-ratio", "gpu-program-toy-fp8-row-saved"} <= set(entries)
    assert entries["gpu-program-toy-bf16-elementwise"]["ours"] > 0
    assert record.RECORD.read_bytes() == before
