"""The time of the trainer's step compared with loops that do less, and its speed-up in bfloat16.

The overhead is judged in CPU time on one thread, which other processes affect less than wall time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tests.benchmarks.harness.interleave import Contender, Request, Spent, in_turn
from tests.benchmarks.harness.peer_venv import peers_python
from tests.benchmarks.report.entries import Entry, at_least, at_most
from tests.benchmarks.trainer.shapes import TOY
from tests.benchmarks.trainer.timed_training import Shape, build_job, learn, write_job
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import BatchSpec

_OVERHEAD_MS = 0.30
"""How much longer the trainer's step may take than a bare loop's."""

_DEGREE_1 = 1.01
"""Bound relative to a plain training, if no axis has a second rank."""

_LONG_STEPS_SHARE = 0.98
"""Bound relative to a bare loop's speed, if steps take 100 ms or more."""

LONG = Shape(
    ModelSpec(layers=4, width=256, heads=4),
    2_048,
    BatchSpec(sequence_tokens=256, micro_sequences=4, global_sequences=4),
)
"""A step takes 0.2 s on one thread."""

WIDE = Shape(
    ModelSpec(layers=4, width=512, heads=8),
    2_048,
    BatchSpec(sequence_tokens=256, micro_sequences=8, global_sequences=8),
)
"""So large that matmuls are most of a step."""

_HERE = "tests.benchmarks.trainer.contenders"
OURS = Contender(_HERE, "ours")
BARE = Contender(_HERE, "bare")
HF_TRAINER = Contender(_HERE, "hf_trainer")
_COMPILED = Contender(_HERE, "bare_bf16_compiled")


def overhead(toy: bool, folder: Path) -> dict[str, Entry]:
    """Milliseconds of a step of a tiny model: the trainer compared with a bare loop."""
    spent = _tiny_steps(toy, folder / "overhead", {"ours": OURS, "bare": BARE})
    bare = 1e3 * spent["bare"].cpu_median()
    bound = 1 + _OVERHEAD_MS / bare
    return {"overhead": _milliseconds(spent, "bare", bound, bound)}


def overhead_of_hf_trainer(toy: bool, folder: Path) -> dict[str, Entry]:
    """The same compared with Hugging Face's Trainer and the same network.

    Raises:
        RefusedError: it is not installed.
    """
    peer = replace(HF_TRAINER, python=peers_python(create=not toy))
    spent = _tiny_steps(toy, folder / "hf", {"ours": OURS, "bare": BARE, "hf": peer})
    over = {name: 1e3 * (spent[name].cpu_median() - spent["bare"].cpu_median()) for name in ("ours", "hf")}
    print(f"  over a bare loop: ours {over['ours']:+.2f} ms a step, HF Trainer {over['hf']:+.2f} ms")
    return {"overhead-hf-trainer": _milliseconds(spent, "hf", 1.0, 1.0)}


def overhead_of_long_steps(toy: bool, folder: Path) -> dict[str, Entry]:
    """Steps so long that the trainer's own work must be negligible."""
    request = _request(folder / "long", TOY if toy else LONG, 2_000, threads=1)
    spent = in_turn(
        {"ours": OURS, "bare": BARE}, request, 1 if toy else 10, 1 if toy else 10, 1 if toy else 2
    )
    bound = 1 / _LONG_STEPS_SHARE
    return {"overhead-100ms": _milliseconds(spent, "bare", bound, bound)}


def degree_1(toy: bool, folder: Path) -> dict[str, Entry]:
    """A layout with all degrees given as 1, at each ZeRO stage, compared with a spec without a layout.

    All run in one process and on one thread: two equal processes differ by more than the bound.
    """
    names = {"plain": None, "ours": 0} | {f"zero-{stage}": stage for stage in (1, 2, 3)}
    layout = {"tensor": 1, "pipeline": 1, "data": 1, "schedule": "1f1b", "stages_per_rank": 1}
    sections = {
        name: {} if stage is None else {"parallelism": layout | {"zero_stage": stage}}
        for name, stage in names.items()
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        spent = _in_one_process(sections, folder / "degree-1", *((1, 1) if toy else (20, 200)))
    finally:
        torch.set_num_threads(threads)
    return {
        "degree-1" if name == "ours" else f"degree-1-{name}": _milliseconds(
            {"ours": spent[name], "plain": spent["plain"]}, "plain", _DEGREE_1, _DEGREE_1
        )
        for name in names
        if name != "plain"
    }


def _in_one_process(
    sections: Mapping[str, dict[str, Any]], folder: Path, warm_up: int, rounds: int
) -> dict[str, Spent]:
    """Steps of float32 trainings whose specs differ by ``sections``, one at a time, in order and in reverse order."""
    rare = {"every_steps": 2_000}
    trainings = {
        name: build_job(
            write_job(
                folder / name,
                TOY,
                2_000,
                validation=rare,
                checkpoint=rare,
                precision={"kind": "fp32"},
                **more,
            )
        )
        for name, more in sections.items()
    }
    spent = {name: Spent() for name in trainings}
    for training in trainings.values():
        learn(training, warm_up)
    for _ in range(rounds):
        for name in [*trainings, *reversed(trainings)]:
            wall, cpu = time.perf_counter(), time.process_time()
            learn(trainings[name], 1)
            spent[name].wall.append(time.perf_counter() - wall)
            spent[name].cpu.append(time.process_time() - cpu)
    return spent


def compiled(toy: bool, folder: Path) -> dict[str, Entry]:
    """Tokens per second in bfloat16, compiled, compared with a bare loop in float32 and a compiled one in bfloat16.

    Matmuls alone, in both formats, show the largest possible gain on this machine.
    """
    shape = TOY if toy else WIDE
    how = "off" if toy else "on"
    request = _request(folder / "compile", shape, 1_000, threads=torch.get_num_threads())
    spent = in_turn(
        {"ours": OURS, "bare": BARE, "bare-compiled": _COMPILED},
        request,
        warm_up=1 if toy else 10,
        rounds=1 if toy else 15,
        options={"ours": {"kind": "bf16", "compile": how}, "bare-compiled": {"compile": how}},
    )
    rates = {name: shape.tokens_per_step / one.wall_median() for name, one in spent.items()}
    cpu = {name: one.cpu_median() for name, one in spent.items()}
    ours, bare, also = (rates[name] for name in ("ours", "bare", "bare-compiled"))
    matmuls = _gemm_rates(256 if toy else 2_048)
    return {
        "compile": at_least(ours, bare, "tokens/s", 2.5, 4.5).with_other_clock(cpu["bare"] / cpu["ours"]),
        "compile-bare": at_least(ours, also, "tokens/s", 1.0, 1.0).with_other_clock(
            cpu["bare-compiled"] / cpu["ours"]
        ),
        "compile-ceiling": at_least(*matmuls, "GFLOP/s of matmuls, bf16 and fp32", 2.5, 4.5),
    }


def _gemm_rates(size: int) -> tuple[float, float]:
    """GFLOP/s of square matmuls in bfloat16 and in float32, measured alternately."""
    seconds: dict[torch.dtype, list[float]] = {torch.bfloat16: [], torch.float32: []}
    factors = {dtype: torch.randn(2, size, size, dtype=dtype) for dtype in seconds}
    for number in range(10):
        for dtype in (torch.bfloat16, torch.float32, torch.float32, torch.bfloat16):
            left, right = factors[dtype]
            began = time.perf_counter()
            left @ right
            if number:
                seconds[dtype].append(time.perf_counter() - began)
    fast, slow = (2 * size**3 / median(spent) / 1e9 for spent in seconds.values())
    return fast, slow


def _tiny_steps(toy: bool, folder: Path, contenders: dict[str, Contender]) -> dict[str, Spent]:
    warm_up, rounds, steps = (1, 1, 2) if toy else (20, 40, 5)
    return in_turn(contenders, _request(folder, TOY, 2_000, threads=1), warm_up, rounds, steps)


def _request(folder: Path, shape: Shape, steps: int, threads: int) -> Request:
    return Request(
        folder=folder,
        model=shape.model,
        vocabulary=shape.vocabulary,
        batch=shape.batch,
        steps=steps,
        threads=threads,
    )


def _milliseconds(spent: dict[str, Spent], peer: str, passes: float, goal: float) -> Entry:
    """CPU time of a step, with the ratio of wall times as the other clock."""
    cpu = [1e3 * spent[name].cpu_median() for name in ("ours", peer)]
    wall = spent["ours"].wall_median() / spent[peer].wall_median()
    return at_most(*cpu, "ms of CPU a step", passes, goal).with_other_clock(wall)
