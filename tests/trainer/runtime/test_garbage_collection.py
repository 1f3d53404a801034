"""Garbage is collected at the right time and does not interrupt imports."""

from __future__ import annotations

import gc
import weakref

import pytest

from trainwright_trainer.runtime.garbage_collection import (
    collect_after_step,
    collection_paused,
    synchronized_collection,
)


class Ring:
    """A reference cycle, which only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_is_collected_after_imports_and_not_during_them() -> None:
    before = gc.get_freeze_count()
    with collection_paused():
        assert not gc.isenabled()
        kept: list[list[int]] = [[number] for number in range(10_000)]
    try:
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(kept)
    finally:
        gc.unfreeze()


def test_cycles_of_a_step_are_collected_after_it_and_not_before() -> None:
    with synchronized_collection():
        ring = weakref.ref(Ring())
        made: list[list[int]] = [[number] for number in range(10_000)]
        assert len(made) == 10_000 and ring() is not None
        collect_after_step(1)
        assert ring() is None


@pytest.mark.slow(target="layouts")
def test_a_cycle_that_outlives_its_step_is_collected_periodically() -> None:
    with synchronized_collection():
        held = Ring()
        ring = weakref.ref(held)
        collect_after_step(1)
        del held
        collect_after_step(199)
        assert ring() is not None
        collect_after_step(200)
        assert ring() is None
