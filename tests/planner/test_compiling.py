"""Which runs are compiled."""

from typing import Any

import pytest

from tests.planner.test_plan import spec_of
from trainwright.planner.compiling import compiles

SHORT = {"steps": 10, "warmup_steps": 1}
LONG = {"steps": 10_000}
"""A step of 64 sequences of 512 tokens by 63·10⁶ FLOPs is 2·10¹²: 2·10¹³ and 2·10¹⁶."""


@pytest.mark.parametrize(
    ("kind", "schedule", "compiled"),
    [("bf16", LONG, True), ("bf16", SHORT, False), ("fp32", LONG, False), ("fp8", LONG, False)],
)
def test_by_itself_a_cpu_compiles_long_runs_in_bfloat16(
    kind: str, schedule: dict[str, int], compiled: bool
) -> None:
    assert compiles(spec_of(precision={"kind": kind}, schedule=schedule), cuda=False) is compiled


def test_what_counts_is_the_length_for_each_rank() -> None:
    """100 steps take 2·10¹⁴ FLOPs: for each of 4 ranks that is less than is worth it."""
    sections: dict[str, Any] = {"precision": {"kind": "bf16"}, "schedule": {"steps": 100}}
    assert compiles(spec_of(1, **sections), cuda=False)
    assert not compiles(spec_of(4, **sections), cuda=False)


@pytest.mark.parametrize(
    ("parallelism", "compiled"),
    [
        ({}, True),
        ({"pipeline": 2, "schedule": "zbv"}, False),
        ({"engine": "deepspeed", "zero_stage": 3}, False),
        ({"engine": "deepspeed", "zero_stage": 2}, True),
    ],
)
def test_on_a_gpu_everything_is_that_can_be(parallelism: dict[str, Any], compiled: bool) -> None:
    sections: dict[str, Any] = {"precision": {"kind": "bf16"}, "schedule": SHORT, "parallelism": parallelism}
    assert compiles(spec_of(2, **sections), cuda=True) is compiled


def test_what_is_said_is_done() -> None:
    said = {word: {"kind": "fp32", "compile": word} for word in ("on", "off")}
    assert compiles(spec_of(precision=said["on"]), cuda=False)
    assert not compiles(spec_of(precision=said["off"]), cuda=True)
