"""Where the time of a step goes.

The timer marks the end of each section of work; the time since the previous mark belongs to it. So the
timings add up to the step by construction. A step begins where the last one ended, so that the steps add up to the time of
the training: what is done between two steps, while a GPU has nothing to do, counts for the second. Validation and checkpoints
belong to no step. On a GPU the marks are events in its stream, read after the step. Each mark also counts in the
rank's progress, so the agent sees that the rank is not stuck.
"""

from __future__ import annotations

import time
from enum import StrEnum

import torch

from trainwright_trainer.distributed.progress_counters import ProgressCounters


class Timing(StrEnum):
    __hash__ = str.__hash__  # an enum's own hash is Python code, and each step looks up a few dozen

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    COLLECTIVES = "collectives"
    OPTIMIZER = "optimizer"
    OTHER = "other"
    """Between two steps: metrics, their report, and garbage collection."""


class StepTimer:
    """Seconds of one step by section of work."""

    def __init__(self, device: torch.device, progress: ProgressCounters | None = None) -> None:
        """``progress``: where the rank publishes its progress; None for nowhere."""
        self._on_gpu = device.type == "cuda"
        self._progress = progress or ProgressCounters()
        self._marks: list[tuple[Timing | None, float | torch.cuda.Event]] = []
        self._follows_step = False

    def start(self) -> None:
        """Begin a step, which follows the last one unless ``interrupt`` was called."""
        now = self._now()
        last = self._marks[-1][1] if self._follows_step else now
        self._marks = [(None, last), (Timing.OTHER, now)]
        self._follows_step = True

    def interrupt(self) -> None:
        """The time from the end of the last step to now belongs to no step."""
        self._follows_step = False

    def mark(self, timing: Timing) -> None:
        """The time since the last mark was spent on ``timing``."""
        self._marks.append((timing, self._now()))
        self._progress.count_section()

    def seconds(self) -> dict[Timing, float]:
        """Time of each section since ``start``. It waits for the sections on a GPU, but not for collectives that end during
        the next step.
        """
        last = self._marks[-1][1]
        if isinstance(last, torch.cuda.Event):
            last.synchronize()
        spent = dict.fromkeys(Timing, 0.0)
        for (_, before), (timing, after) in zip(self._marks, self._marks[1:], strict=False):
            assert timing is not None
            spent[timing] += _elapsed(before, after)
        return spent

    def _now(self) -> float | torch.cuda.Event:
        if not self._on_gpu:
            return time.perf_counter()
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _elapsed(before: float | torch.cuda.Event, after: float | torch.cuda.Event) -> float:
    if isinstance(before, float) and isinstance(after, float):
        return after - before
    assert isinstance(before, torch.cuda.Event) and isinstance(after, torch.cuda.Event)
    milliseconds: float = before.elapsed_time(after)
    return milliseconds / 1e3
