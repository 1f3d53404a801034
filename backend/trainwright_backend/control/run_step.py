"""Running the steps of the control loop. One that fails is logged and repeated in a later round; the others continue."""

from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from trainwright_backend.core.background import run_logging_errors
from trainwright_backend.core.counters import STEP_ERRORS
from trainwright_backend.core.errors import AppError


def run_step(step: Callable[[], object], **context: str) -> bool:
    """Run ``step``, and return whether it succeeded."""
    expected = (AppError, SQLAlchemyError, OSError)
    error = run_logging_errors(step, "a step of the control loop failed", expected=expected, **context)
    if error is not None:
        STEP_ERRORS.inc()
    return error is None
