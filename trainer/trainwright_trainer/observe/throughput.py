"""The speed of a step, and the remaining time of the run.

MFU is model FLOPs per second over the peak of all ranks' devices (Chowdhery et al. 2022), shown only if the peak is
known. With FP8 matmuls there are two: against the FP8 peak, and against that of BF16, which compares with the same
training in bfloat16. HFU also counts the FLOPs that are recomputed to save memory. HFU says how busy the device is, and
MFU how fast the training advances.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from trainwright.contracts.job_spec import Peak
from trainwright_trainer.observe.step_timer import Timing

_RECENT_STEPS = 50


_SERIES = {timing: f"{timing}_seconds" for timing in Timing}


@dataclass
class Throughput:
    """Computes throughput metrics from the timings of steps."""

    steps: int
    """Last step of the run."""

    tokens_per_step: int
    flops_per_token: int
    ranks: int
    peak: Peak | None
    """The peak in the dtype of the matmuls."""

    bf16_peak: Peak | None
    """Set for FP8 matmuls, whose MFU is shown against both peaks."""

    recomputed_flops_per_token: int = 0
    """Added to the model's for HFU."""

    tokens_before: int = 0
    """Tokens seen minus steps times ``tokens_per_step``: a fork's parent may have had other batches."""

    _recent: deque[float] = field(default_factory=lambda: deque([time.monotonic()], maxlen=_RECENT_STEPS + 1))

    def values(self, step: int, timings: dict[Timing, float]) -> dict[str, float]:
        """Series values of ``step``, which has just ended."""
        seconds = sum(timings.values())
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
        for timing, spent in timings.items():
            values[_SERIES[timing]] = spent
        return values

    def _eta(self, step: int) -> float:
        """Wall time to the end at the recent pace, including checkpoints and validation."""
        self._recent.append(time.monotonic())
        pace = (self._recent[-1] - self._recent[0]) / (len(self._recent) - 1)
        return pace * (self.steps - step)
