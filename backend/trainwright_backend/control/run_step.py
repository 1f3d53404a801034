"""Running the steps of the control loop. One that fails is logged and repeated in a later round; the others continue."""

from collections.abc import Callable

from trainwright_backend.core.background import UNAVAILABLE, run_logging_errors
from trainwright_backend.core.counters import STEP_ERRORS


def run_step(step: Callable[[], object], **context: str) -> bool:
    """Run ``step``, and return whether it succeeded."""
    error = run_logging_errors(step, "a step of the control loop failed", expected=UNAVAILABLE, **context)
    if error is not None:
        STEP_ERRORS.inc()
    return error is None
