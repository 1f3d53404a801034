"""Garbage is collected when it is time, and imports are not disturbed by it."""

import gc

from trainwright_trainer.garbage import importing


def test_nothing_is_collected_while_modules_are_imported_and_all_is_afterwards() -> None:
    before = gc.get_freeze_count()
    with importing():
        assert not gc.isenabled()
        kept: list[list[int]] = [[number] for number in range(10_000)]
    try:
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(kept)
    finally:
        gc.unfreeze()
