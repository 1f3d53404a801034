"""Skipped steps: an update with a gradient that is not finite would make every weight unusable, so it is skipped.

In 8 bits a gradient overflows occasionally, and the next one does not, because its scales have adapted. A few skipped
steps in a row are tolerated; more of them, or any in wider formats, mean that the run has diverged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.contracts.precision_spec import PrecisionSpec
from trainwright_trainer.runtime.errors import DivergedError
from trainwright_trainer.training.engine import StepMetrics


@dataclass
class SkippedSteps:
    """Counts skipped steps; equal on all ranks, since their metrics are."""

    limit: int
    """How many steps in a row may be skipped without ending the run."""

    total: int = 0
    """Since step 0."""

    consecutive: int = 0

    def record(self, metrics: StepMetrics) -> None:
        """Count a step.

        Raises:
            DivergedError: the step was skipped, and so were ``limit`` steps before it.
        """
        if metrics.finite:
            self.consecutive = 0
        elif self.consecutive == self.limit:
            raise DivergedError(self._message(metrics), metrics.cause)
        else:
            self.consecutive += 1
            self.total += 1

    def scalars(self) -> dict[str, Any]:
        """The state that a checkpoint saves."""
        return {"skipped_steps": self.total, "skipped_in_a_row": self.consecutive}

    def restore(self, scalars: dict[str, Any]) -> None:
        self.total, self.consecutive = scalars["skipped_steps"], scalars["skipped_in_a_row"]

    def _message(self, metrics: StepMetrics) -> str:
        before = f"after {self.consecutive} skipped steps " if self.consecutive else ""
        return f"{before}{metrics.problem}"


def skip_limit(precision: PrecisionSpec) -> int:
    """How many steps in a row a run of this precision may skip."""
    return precision.fp8.skip_limit if precision.fp8 is not None else 0
