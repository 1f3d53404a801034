"""What can go wrong between the platform and a bucket, as errors that callers know."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from obstore.exceptions import BaseError

from trainwright_backend.core.counters import STORE_ERRORS
from trainwright_backend.core.errors import AppError

log = structlog.get_logger()


class ObjectStoreError(AppError):
    """The object store does not respond, or refuses. Nothing was stored or lost."""

    def __init__(self) -> None:
        STORE_ERRORS.labels("unavailable").inc()
        detail = "The object store does not respond. Nothing was lost: try again in a moment."
        super().__init__("object_store_unavailable", 503, detail, headers={"Retry-After": "5"})


@contextmanager
def writing_to_store() -> Iterator[None]:
    """Like `reaching_store`, where a missing object means a missing bucket."""
    with reaching_store():
        try:
            yield
        except FileNotFoundError as error:
            log.error("object store", error=str(error)[:500])
            raise ObjectStoreError from error


@contextmanager
def reaching_store() -> Iterator[None]:
    """Turn errors of the store's client into `ObjectStoreError`. A missing object stays FileNotFoundError."""
    try:
        yield
    except BaseError as error:
        log.warning("object store", error=str(error)[:500])
        raise ObjectStoreError from error
