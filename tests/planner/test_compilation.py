"""The planner's choice of runs to compile."""

import re
from typing import Any

import pytest

from tests.planner.test_plan import spec_of
from trainwright.planner.compilation import compiles, why_not_compiled

SHORT = {"steps": 10, "warmup_steps": 1}
LONG = {"steps": 10_000}
"""A step of 64 sequences of 512 tokens by 63·10⁶ FLOPs is 2·10¹²: 2·10¹³ and 2·10¹⁶."""


@pytest.mark.parametrize(
    ("kind", "schedule", "compiled"),
    [("bf16", LONG, True), ("bf16", SHORT, False), ("fp32", LONG, False), ("fp8", LONG, False)],
)
def test_auto_compiles_long_runs_in_bfloat16_on_a_cpu(
    kind: str, schedule: dict[str, int], compiled: bool
) -> None:
    assert compiles(spec_of(precision={"kind": kind}, schedule=schedule), cuda=False) is compiled


def test_the_length_per_rank_decides() -> None:
    """100 steps take 2·10¹⁴ FLOPs; split over 4 ranks, that is too few to be worth compiling."""
    sections: dict[str, Any] = {"precision": {"kind": "bf16"}, "schedule": {"steps": 100}}
    assert compiles(spec_of(1, **sections), cuda=False)
    assert not compiles(spec_of(4, **sections), cuda=False)


@pytest.mark.parametrize(
    ("parallelism", "hindered"),
    [
        ({}, None),
        ({"pipeline": 2, "schedule": "zbv"}, "schedule zbv .* 1f1b and interleaved are compiled"),
        ({"tensor": 2, "tensor_chunks": 2}, "parallelism.tensor_chunks 1 is compiled"),
        ({"engine": "deepspeed", "zero_stage": 3}, "zero_stage 3; zero_stage 2 and engine native"),
        ({"engine": "deepspeed", "zero_stage": 2}, None),
    ],
)
def test_gpu_runs_are_compiled_or_give_the_reason_why_not(
    parallelism: dict[str, Any], hindered: str | None
) -> None:
    sections: dict[str, Any] = {"precision": {"kind": "bf16"}, "schedule": SHORT, "parallelism": parallelism}
    spec = spec_of(2, **sections)
    assert compiles(spec, cuda=True) is (hindered is None)
    reason = why_not_compiled(spec, cuda=True)
    assert reason is None if hindered is None else re.search(hindered, reason or "")
    assert why_not_compiled(spec, cuda=False) is None, "a run this short is not compiled on CPUs anyway"


def test_an_explicit_setting_takes_precedence() -> None:
    precision = {word: {"kind": "fp32", "compile": word} for word in ("on", "off")}
    assert compiles(spec_of(precision=precision["on"]), cuda=False)
    assert not compiles(spec_of(precision=precision["off"]), cuda=True)
