"""The rows of ``make gpu``: what each measures, and the marks that it is judged by.

FLOP/s use the formula 6·N + 12·L·A·T per token, as published figures do; ``causal`` subtracts the half of attention that the
mask makes unnecessary. MFU is in percent of the vendor's bfloat16 peak (989 TFLOP/s on an H200) for both precisions. Bytes
are decimal: 1 GB is 10⁹.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.benchmarks.report.results import Figure, RefusedError, latest, read
from tests.benchmarks.trainer.gemm_ceilings import gemm_ceilings
from tests.benchmarks.trainer.peer_trainers import compare_with_peer
from tests.benchmarks.trainer.shapes import SHAPES, TOY
from tests.benchmarks.trainer.timed_training import (
    Shape,
    Timing,
    build_job,
    device,
    learn,
    measure,
    peak,
    write_job,
)
from trainwright_trainer.fp8.compute.weight import Weight
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.observe.memory import device_name
from trainwright_trainer.training.build import Training

Figures = dict[str, Figure]

_TERA = 1e12
_GB = 1e9

BF16 = {"kind": "bf16"}
FP8 = {"kind": "fp8", "fp8": {"level": "O2"}}


@dataclass(frozen=True)
class Setting:
    """Options for running a row."""

    folder: Path
    dry: bool
    """At toy size, on any device; nothing is recorded."""

    record: Path
    """Results of other rows."""

    @property
    def steps(self) -> tuple[int, int]:
        """Warm-up and timed steps."""
        return (1, 2) if self.dry else (5, 10)

    def shape(self, name: str) -> Shape:
        return TOY if self.dry else SHAPES[name]


@dataclass(frozen=True)
class Mark:
    """The bound that a figure must reach."""

    figure: str
    passes: float
    goal: float | None = None
    at_most: bool = False
    """Whether less is better."""

    def reached(self, value: float) -> str:
        """`goal`, `pass` or `no`."""
        sign = -1 if self.at_most else 1
        if self.goal is not None and sign * value >= sign * self.goal:
            return "goal"
        return "pass" if sign * value >= sign * self.passes else "no"


@dataclass(frozen=True)
class Row:
    """One measurement, of at most ten minutes."""

    name: str
    says: str
    run: Callable[[Setting], Figures]
    marks: tuple[Mark, ...] = field(default=())


CHECKS: dict[str, tuple[str, ...]] = {
    "checks": ("tests/trainer", "--ignore=tests/trainer/fp8"),
    "checks-fp8-layers": ("tests/trainer/fp8/compute",),
    "checks-fp8-learning": ("tests/trainer/fp8/test_gpu.py", "-k", "tensor_cores"),
    "checks-fp8-state": ("tests/trainer/fp8", "--ignore=tests/trainer/fp8/compute", "-k", "not tensor_cores"),
}
"""The tests marked `gpu` that a row runs; each test is in one row."""

_CHECK_WORKERS = 4
"""Processes that share the GPU. The tests are small, and most of their time is compilation on the CPU."""


def checks(name: str, setting: Setting) -> Figures:
    """Some of the tests that need a GPU. A dry run collects them."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *CHECKS[name]]
    # A training's first step may compile for a minute or two.
    command += ["--collect-only"] if setting.dry else ["--timeout=400", "-n", str(_CHECK_WORKERS)]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout[-4_000:], done.stderr[-2_000:], flush=True)
    return {"exit_code": done.returncode}


def throughput(name: str, setting: Setting) -> Figures:
    """Both precisions, with equal micro batches."""
    shape = setting.shape(name)
    figures: Figures = {
        "parameters": shape.parameters,
        "micro_sequences": shape.batch.micro_sequences,
        "tokens_per_step": shape.tokens_per_step,
    }
    times = {
        kind: _measured(setting, shape, kind, precision) for kind, precision in (("bf16", BF16), ("fp8", FP8))
    }
    for kind, timing in times.items():
        figures |= _rates(kind, shape, timing)
    figures["ratio"] = times["fp8"].tokens_per_second / times["bf16"].tokens_per_second
    ceilings = gemm_ceilings(64, 1) if setting.dry else gemm_ceilings(8_192, 20)
    return figures | {f"{kind}_gemm_tflops": rate / _TERA for kind, rate in ceilings.items()}


def memory_state(setting: Setting) -> Figures:
    """Bytes per parameter of O2's state, counted over its tensors, without and with gradient accumulation."""
    shape = setting.shape("1.3b")
    figures: Figures = {"parameters": shape.parameters}
    for rounds in (1, 2):
        micro = shape.batch.micro_sequences
        now = shape.with_batch(micro, micro * rounds)
        training = build_job(write_job(setting.folder, now, 2, precision=FP8))
        accumulated = _watch_accumulated(training)
        learn(training, 2)
        assert isinstance(training.engine.updater, FP8Updater)
        kept = state_bytes(training.engine.updater)
        name = "bytes_a_parameter" if rounds == 1 else "bytes_a_parameter_accumulating"
        figures[name] = (kept + max(accumulated, default=0)) / shape.parameters
        _free(training)
    return figures


def state_bytes(updater: FP8Updater) -> int:
    """Bytes of gradients, both moments and master weights, with their scales and amaxes."""
    optimizer = updater.optimizer
    held = [*_tensors(optimizer), *_tensors(updater.gradients)]
    for kind in (optimizer.master, optimizer.first, optimizer.second):
        held += _tensors(kind)
    return sum(tensor.nbytes for tensor in {id(item): item for item in held}.values())


def memory_7b(setting: Setting) -> Figures:
    """Peak memory of both precisions at micro batch 1, nothing recomputed, nothing accumulated."""
    shape = setting.shape("7b").with_batch(1, 1)
    figures: Figures = {}
    for kind, precision in (("bf16", BF16), ("fp8", FP8)):
        figures[f"{kind}_peak_gb"] = _measured(setting, shape, kind, precision).peak_bytes / _GB
    figures["ratio"] = float(figures["fp8_peak_gb"]) / float(figures["bf16_peak_gb"])
    return figures


def memory_8b(setting: Setting) -> Figures:
    """Fifty steps of an 8B model, nothing recomputed; the peak includes building it."""
    shape = setting.shape("8b")
    warm_up, timed = setting.steps if setting.dry else (5, 45)
    timing = measure(setting.folder, shape, warm_up, timed, precision=FP8)
    return _rates("fp8", shape, timing) | {
        "steps": warm_up + timed,
        "build_peak_gb": timing.build_peak_bytes / _GB,
        "whole_peak_gb": max(timing.peak_bytes, timing.build_peak_bytes) / _GB,
    }


CAP_BYTES = 130e9
"""Between the memory that 7B needs in bfloat16 with full recomputation and without."""


def capped_bf16(setting: Setting) -> Figures:
    """bfloat16 under the cap: the largest micro batch that fits. It recomputes everything, since it does not fit
    otherwise."""
    return _largest_under_cap(setting, "bf16", BF16, "full")


def capped_fp8(setting: Setting) -> Figures:
    """FP8 under the cap, nothing recomputed, compared with the recorded row of bfloat16.

    Raises:
        RefusedError: that row has not been measured on this kind of GPU.
    """
    if setting.dry:
        before = capped_bf16(setting)
    else:
        found = latest(read(setting.record)).get("capped-bf16")
        if found is None or found.device != device_name(device()):
            raise RefusedError("it is compared with capped-bf16: run `make gpu ROW=capped-bf16` here first")
        before = found.figures
    figures = _largest_under_cap(setting, "fp8", FP8, "none")
    ours, theirs = (
        float(one[f"{kind}_tokens_per_second"]) for kind, one in (("fp8", figures), ("bf16", before))
    )
    return figures | {"ratio": ours / theirs}


OFFLOADED = {"engine": "deepspeed", "zero_stage": 2, "offload": "optimizer"}
"""DeepSpeed with master weights and moments in host memory, updated by the CPU."""


def offload_3b(setting: Setting) -> Figures:
    """The cost of two ways to save GPU memory: state offloaded to the host, or kept in 8 and 16 bits."""
    shape = setting.shape("3b")
    figures: Figures = {"parameters": shape.parameters}
    ways: dict[str, dict[str, Any]] = {
        "offload": {"precision": BF16, "parallelism": OFFLOADED},
        "fp8": {"precision": FP8},
    }
    rates = {}
    for kind, sections in ways.items():
        timing = measure(setting.folder / kind, shape, *setting.steps, **sections)
        _free()
        figures |= _rates(kind, shape, timing)
        rates[kind] = timing.tokens_per_second
    return figures | {"ratio": rates["fp8"] / rates["offload"]}


ALONE = {"tensor": 1, "pipeline": 1, "data": 1, "schedule": "1f1b", "stages_per_rank": 1}


def degree_1(setting: Setting) -> Figures:
    """Steps with all degrees given as 1, at each ZeRO stage, compared with a spec without a layout, in A-B-B-A
    order."""
    shape = setting.shape("1.3b")
    names: list[str] = ["plain", *(f"zero_{stage}" for stage in range(4))]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn, name in enumerate([*names, *reversed(names)]):
        layout = {} if name == "plain" else ALONE | {"zero_stage": int(name.removeprefix("zero_"))}
        folder = setting.folder / f"{turn}-{name}"
        timing = measure(folder, shape, *setting.steps, precision=BF16, parallelism=layout)
        _free()
        seconds[name].append(timing.seconds)
    mean = {name: sum(both) / len(both) for name, both in seconds.items()}
    return {f"{name}_ratio": mean[name] / mean["plain"] for name in names[1:]} | {
        "plain_step_seconds": mean["plain"]
    }


def compare_with_named_peer(name: str, precision: str, setting: Setting) -> Figures:
    """Ours and another trainer alternately, each in separate processes."""
    shape = setting.shape("peer")
    return compare_with_peer(name, precision, shape, setting.steps, setting.folder)


def _largest_under_cap(setting: Setting, kind: str, precision: dict[str, Any], recompute: str) -> Figures:
    """The rate of 7B with the largest micro batch that fits the cap.

    Raises:
        RefusedError: this GPU has less memory than the cap, or none fits.
    """
    if not setting.dry:
        total = torch.cuda.get_device_properties(0).total_memory
        if total < CAP_BYTES:
            raise RefusedError(f"the cap is {CAP_BYTES / _GB:.0f} GB, this GPU has {total / _GB:.0f} GB")
        torch.cuda.set_per_process_memory_fraction(CAP_BYTES / total)
    micros = (4, 2, 1)
    for micro in micros:
        shape = setting.shape("7b").with_batch(micro, max(micros) if setting.dry else 8)
        folder = setting.folder / f"{kind}-{recompute}-{micro}"
        try:
            timing = measure(
                folder, shape, *setting.steps, precision=precision, memory={"recompute": recompute}
            )
        except torch.OutOfMemoryError:
            print(f"{kind}, recompute {recompute}, micro batch {micro}: does not fit", flush=True)
            continue
        finally:
            _free()
        return {
            "cap_gb": CAP_BYTES / _GB,
            f"{kind}_micro_sequences": micro,
            f"{kind}_tokens_per_second": timing.tokens_per_second,
        }
    raise RefusedError(f"no micro batch of {kind} fits the cap")


def _measured(setting: Setting, shape: Shape, name: str, precision: dict[str, Any]) -> Timing:
    timing = measure(setting.folder / name, shape, *setting.steps, precision=precision)
    _free()
    print(f"{name}: {timing.tokens_per_second:,.0f} tokens/s, {timing.peak_bytes / _GB:.1f} GB", flush=True)
    return timing


def _rates(kind: str, shape: Shape, timing: Timing) -> Figures:
    rate = timing.tokens_per_second * shape.flops_per_token
    causal = timing.tokens_per_second * shape.causal_flops_per_token
    figures: Figures = {
        f"{kind}_tokens_per_second": timing.tokens_per_second,
        f"{kind}_step_seconds": timing.seconds,
        f"{kind}_tflops": rate / _TERA,
        f"{kind}_causal_tflops": causal / _TERA,
        f"{kind}_peak_gb": timing.peak_bytes / _GB,
        f"{kind}_planned_gb": timing.planned_bytes / _GB,
    }
    bf16_peak = peak("bf16")
    if bf16_peak is not None:
        figures |= {
            f"{kind}_mfu_percent": 100 * rate / bf16_peak,
            f"{kind}_causal_mfu_percent": 100 * causal / bf16_peak,
        }
    return figures


def _watch_accumulated(training: Training) -> list[int]:
    """A list that gets the bytes of accumulated gradients whenever a micro batch ends."""
    updater = training.engine.updater
    assert isinstance(updater, FP8Updater)
    found: list[int] = []
    end_micro_batch = updater.end_micro_batch
    handles = [module.handle for module in training.engine.model.modules() if isinstance(module, Weight)]

    def counting() -> None:
        found.append(sum(handle.grad.nbytes for handle in handles if handle.grad is not None))
        end_micro_batch()

    updater.end_micro_batch = counting
    return found


def _tensors(holder: object) -> list[Tensor]:
    return [value for value in vars(holder).values() if isinstance(value, Tensor)]


def _free(*_: object) -> None:
    """Free what the last training used, and compiled code, which refers to it."""
    torch.compiler.reset()
    gc.collect()
    if device().type == "cuda":
        torch.cuda.empty_cache()


def _checks_row(name: str, says: str) -> Row:
    return Row(name, says, lambda setting: checks(name, setting), (Mark("exit_code", 0, 0, at_most=True),))


def _throughput_row(name: str, mfu: Mark, ratio: Mark, tflops: Mark) -> Row:
    says = f"training {name.upper()} in bfloat16 and in FP8 (O2), alternately, with equal micro batches"
    return Row(
        f"throughput-{name}", says, lambda setting: throughput(name, setting), marks=(mfu, ratio, tflops)
    )


def _peer_row(name: str, precision: str, says: str, *marks: Mark) -> Row:
    return Row(
        f"peer-{name}", says, lambda setting: compare_with_named_peer(name, precision, setting), marks=marks
    )


ROWS: tuple[Row, ...] = (
    _checks_row("checks", "the tests marked `gpu`, except those of FP8"),
    _checks_row("checks-fp8-layers", "the tests marked `gpu` of FP8's matmuls and layers"),
    _checks_row(
        "checks-fp8-learning", "the tests marked `gpu` that compare a training in FP8 with the CPU's"
    ),
    _checks_row("checks-fp8-state", "the other tests marked `gpu` of FP8"),
    _throughput_row(
        "1.3b", Mark("bf16_mfu_percent", 45, 52), Mark("ratio", 1.08, 1.15), Mark("fp8_tflops", 480, 590)
    ),
    _throughput_row(
        "3b", Mark("bf16_mfu_percent", 48, 55), Mark("ratio", 1.15, 1.25), Mark("fp8_tflops", 545, 680)
    ),
    _throughput_row(
        "7b", Mark("bf16_mfu_percent", 50, 57), Mark("ratio", 1.22, 1.36), Mark("fp8_tflops", 600, 770)
    ),
    Row(
        "memory-state",
        "bytes of gradients, moments and masters at O2, with and without accumulation (1.3B)",
        memory_state,
        (Mark("bytes_a_parameter", 6.1, at_most=True),),
    ),
    Row(
        "memory-7b",
        "peak memory at 7B, micro batch 1, nothing recomputed: FP8 (O2) ÷ bfloat16",
        memory_7b,
        (Mark("ratio", 0.71, 0.60, at_most=True),),
    ),
    Row(
        "memory-8b",
        "50 steps of Llama-3 8B's shape in FP8 (O2), nothing recomputed",
        memory_8b,
        (Mark("whole_peak_gb", 80, at_most=True),),
    ),
    Row("capped-bf16", "7B in bfloat16 under a cap at which it must recompute", capped_bf16),
    Row(
        "capped-fp8",
        "7B in FP8 (O2) under the same cap, nothing recomputed, compared with the recorded `capped-bf16`",
        capped_fp8,
        (Mark("ratio", 1.64),),
    ),
    Row(
        "offload-3b",
        "3B in FP8 (O2) compared with bfloat16 and its states on the host (DeepSpeed, ZeRO-2), alternately",
        offload_3b,
        (Mark("ratio", 1.0),),
    ),
    Row(
        "degree-1",
        "a layout of one rank, given in full, compared with a spec without a layout (1.3B, bfloat16)",
        degree_1,
        tuple(Mark(f"zero_{stage}_ratio", 1.01, at_most=True) for stage in range(4)),
    ),
    _peer_row(
        "torchtitan",
        "bf16",
        "FP8 (O2) compared with torchtitan 0.2.2 in bfloat16, compiled",
        Mark("ratio", 1.15),
    ),
    _peer_row(
        "torchtitan-fp8",
        "fp8",
        "FP8 (O2) compared with torchtitan 0.2.2 and tensorwise FP8",
        Mark("ratio", 1.1),
    ),
    _peer_row(
        "hf-trainer", "bf16", "FP8 (O2) compared with Hugging Face's Trainer in bfloat16", Mark("ratio", 1.3)
    ),
    _peer_row("torchao", "fp8", "FP8 (O2) compared with torchao's tensorwise float8 on the same model"),
)
