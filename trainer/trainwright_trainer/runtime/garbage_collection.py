"""Python's garbage collection, at the same step on every rank.

A collection stops a process while it scans all objects, and it starts when enough objects were created. With many
ranks, some rank is always stopped, and all others wait for it in the next collective (MegaScale, section 6.3). So
automatic collection is off during training, objects from before the first step are never scanned again, and all ranks
collect together. Reference counts free everything but cycles. Blocks that recompute leave many small cycles: torch's
``tree_flatten`` creates a function that refers to itself for each operator whose result is saved or looked up, about a
hundred objects per block and pass. They do not refer to tensors, but would add up to hundreds of megabytes of host
memory. So each step's objects are scanned after it, in time proportional to their number, and older ones every
``FULL_COLLECTION_EVERY_STEPS`` steps.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

FULL_COLLECTION_EVERY_STEPS = 200
"""Steps from one collection of all generations to the next."""

_YOUNGEST = 0
"""The generation of objects created since the last collection."""


@contextmanager
def synchronized_collection() -> Iterator[None]:
    """Inside, only ``collect_after_step`` collects garbage."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Inside, nothing is collected, and objects created here are never scanned: torch creates many permanent ones.

    Scanning them repeatedly takes a tenth of the import time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_after_step(step: int) -> None:
    """Collect cycles of the last step, and from time to time those of all steps; every rank calls this after
    each step.
    """
    if step % FULL_COLLECTION_EVERY_STEPS == 0:
        gc.collect()
    else:
        gc.collect(_YOUNGEST)
