"""Steps that are skipped: an update of a gradient that is not finite would spoil every weight, so it is not made.

In 8 bits a gradient overflows now and then and the next one does not: its scales have moved. A few such steps in a row
are let pass, the weights untouched; more of them, or any in the wider formats, mean that the run has diverged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.contracts.precision_spec import PrecisionSpec
from trainwright_trainer.ends import DivergedError
from trainwright_trainer.engine import StepNumbers


@dataclass
class Skips:
    """Counts skipped steps; equal on all ranks, since the numbers are."""

    limit: int
    """Skipped steps in a row that do not end the run."""

    total: int = 0
    """Since step 0."""

    in_a_row: int = 0

    def count(self, numbers: StepNumbers) -> None:
        """Take note of a step.

        Raises:
            DivergedError: it was skipped, and so were ``limit`` steps before it.
        """
        if numbers.finite:
            self.in_a_row = 0
        elif self.in_a_row == self.limit:
            raise DivergedError(self._why(numbers))
        else:
            self.in_a_row += 1
            self.total += 1

    def position(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"skipped_steps": self.total, "skipped_in_a_row": self.in_a_row}

    def restore(self, position: dict[str, Any]) -> None:
        self.total, self.in_a_row = position["skipped_steps"], position["skipped_in_a_row"]

    def _why(self, numbers: StepNumbers) -> str:
        before = f"after {self.in_a_row} skipped steps " if self.in_a_row else ""
        return f"{before}{numbers.complaint}"


def skip_limit(precision: PrecisionSpec) -> int:
    """Steps in a row that a run of this precision may skip."""
    return precision.fp8.skip_limit if precision.fp8 is not None else 0
