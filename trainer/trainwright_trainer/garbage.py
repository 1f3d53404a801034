"""Python's garbage collector, at the same step on every rank.

It stops a process for as long as it looks through all objects, whenever enough of them were made. With many ranks one or
the other is always stopped, and all wait for it in the next collective (MegaScale, section 6.3). So it is off while training,
what was there before the first step is never looked at again, and all ranks collect together, now and then: reference
counts free everything but cycles, of which a step leaves few.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_EVERY_STEPS = 200


@contextmanager
def collected_together() -> Iterator[None]:
    """Within, garbage is collected by ``collect_at`` alone."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@contextmanager
def importing() -> Iterator[None]:
    """Within, nothing is collected, and what was made is never looked at again: torch's objects stay, and are many.

    Looking through them again and again takes a tenth of the time that importing does.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_at(step: int) -> None:
    """Collect what cycles keep alive, if it is time; every rank calls this after each step."""
    if step % _EVERY_STEPS == 0:
        gc.collect()
