"""Python's garbage collector, at the same step on every rank.

It stops a process for as long as it looks through all objects, whenever enough of them were made. With many ranks one or
the other is always stopped, and all wait for it in the next collective (MegaScale, section 6.3). So it is off while training,
what was there before the first step is never looked at again, and all ranks collect together. Reference counts free
everything but cycles. Of those a step leaves many small ones where blocks recompute: torch's ``tree_flatten`` makes a
function that names itself at every operator whose result is kept or looked up, some hundred objects a block and pass. They
hold no tensor, but would add up to hundreds of megabytes of the host's memory. So what a step has left is looked at after
it, which takes as long as it is much, and all that outlived its step now and then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALL_EVERY_STEPS = 200
_YOUNGEST = 0
"""The generation of what was made since the collector last looked."""


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
    """Collect what cycles of the last step keep alive, or of all steps, if it is time; every rank calls this after each."""
    if step % _ALL_EVERY_STEPS == 0:
        gc.collect()
    else:
        gc.collect(_YOUNGEST)
