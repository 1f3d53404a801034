"""How fast a step was, where its time went, and how long the rest will take.

A clock marks the end of each stretch of work with its phase; the time since the mark before belongs to it. So the
phases sum to the step by construction. On a GPU the marks are events in its stream, read after the step.

MFU is model FLOPs a second over the peak of all ranks' devices (Chowdhery et al. 2022), shown only where the peak is
known. With products in FP8 it is told twice: against the FP8 peak, and against that of BF16, which is what the same
training in bfloat16 compares with. HFU counts what is computed twice for the sake of memory as well: the device is as busy
as HFU says, the training advances as MFU says.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from trainwright.contracts.job_spec import Peak

_RECENT_STEPS = 50


class Phase(StrEnum):
    __hash__ = str.__hash__  # an enum's own is Python, and each step looks a few dozen up

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    COLLECTIVES = "collectives"
    OPTIMIZER = "optimizer"


_SERIES = {phase: f"{phase}_seconds" for phase in Phase}


class StepClock:
    """Seconds of one step by phase."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[tuple[Phase | None, float | torch.cuda.Event]] = []

    def start(self) -> None:
        self._marks = [(None, self._now())]

    def mark(self, phase: Phase) -> None:
        """The time since the last mark went into ``phase``."""
        self._marks.append((phase, self._now()))

    def seconds(self) -> dict[Phase, float]:
        """Time of each phase since ``start``; waits for the device."""
        if self._on_gpu:
            torch.cuda.synchronize()
        spent = dict.fromkeys(Phase, 0.0)
        for (_, before), (phase, after) in zip(self._marks, self._marks[1:], strict=False):
            assert phase is not None
            spent[phase] += _elapsed(before, after)
        return spent

    def _now(self) -> float | torch.cuda.Event:
        if not self._on_gpu:
            return time.perf_counter()
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


@dataclass
class Throughput:
    """Turns the seconds of steps into the numbers people read."""

    steps: int
    """Last step of the run."""

    tokens_per_step: int
    flops_per_token: int
    ranks: int
    peak: Peak | None
    """In the dtype of the products."""

    bf16_peak: Peak | None
    """Given for products in FP8, where MFU is told against both."""

    recomputed_flops_per_token: int = 0
    """What HFU counts beside."""

    tokens_before: int = 0
    """What the tokens that were seen exceed those of as many such steps by: a fork's parent may have had larger ones."""

    _recent: deque[float] = field(default_factory=lambda: deque([time.monotonic()], maxlen=_RECENT_STEPS + 1))

    def values(self, step: int, phases: dict[Phase, float]) -> dict[str, float]:
        """Series values of ``step``, which has just ended."""
        seconds = sum(phases.values())
        tokens_per_second = self.tokens_per_step / seconds
        values = {
            "tokens": float(self.tokens_before + step * self.tokens_per_step),
            "tokens_per_second": tokens_per_second,
            "eta_seconds": self._eta(step),
            "seconds": seconds,
        }
        rate = tokens_per_second * self.flops_per_token / self.ranks
        for name, peak in (("mfu", self.peak), ("bf16_mfu", self.bf16_peak)):
            if peak is not None:
                values[name] = rate / peak.flops_per_second
        if "mfu" in values:
            values["hfu"] = values["mfu"] * (1 + self.recomputed_flops_per_token / self.flops_per_token)
        for phase, spent in phases.items():
            values[_SERIES[phase]] = spent
        return values

    def _eta(self, step: int) -> float:
        """Wall time to the end at the recent pace, in which checkpoints and validation have their part."""
        self._recent.append(time.monotonic())
        pace = (self._recent[-1] - self._recent[0]) / (len(self._recent) - 1)
        return pace * (self.steps - step)


def _elapsed(before: float | torch.cuda.Event, after: float | torch.cuda.Event) -> float:
    if isinstance(before, float) and isinstance(after, float):
        return after - before
    assert isinstance(before, torch.cuda.Event) and isinstance(after, torch.cuda.Event)
    milliseconds: float = before.elapsed_time(after)
    return milliseconds / 1e3
