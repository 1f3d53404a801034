"""Background work that continues after an unexpected error: the steps of the control loop and the workers' jobs."""

from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from trainwright_backend.core.errors import AppError

UNAVAILABLE = (AppError, SQLAlchemyError, OSError)
"""What work raises while the database, the object store or another host is unavailable: its traceback says nothing more."""

log = structlog.get_logger()


def run_logging_errors(
    work: Callable[[], object], failure: str, *, expected: tuple[type[Exception], ...] = (), **context: object
) -> Exception | None:
    """Run one unit of work, and log an error that it raises as ``failure``.

    An error with one row must not stop the work on all others. Its traceback is logged every time.

    Args:
        expected: errors that are logged without a traceback.

    Returns:
        The error; None if the work succeeded.
    """
    try:
        work()
    except expected as error:
        log.warning(failure, error=str(error), **context)
        return error
    except Exception as error:
        log.exception(failure, **context)
        return error
    return None
