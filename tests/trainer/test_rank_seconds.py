"""Every rank's seconds reach rank 0, and garbage is collected at the same steps everywhere."""

import gc
import weakref

from tests.trainer.ranks import on_ranks
from trainwright_trainer import garbage
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.observe.ranks import EVERY_STEPS, rank_seconds
from trainwright_trainer.observe.throughput import Phase


def _tell(mesh: Mesh, step: int) -> dict[str, float]:
    phases = {phase: mesh.rank + 0.125 * number for number, phase in enumerate(Phase)}
    return rank_seconds(mesh.world, step, phases)


def test_all_ranks_are_told_now_and_then() -> None:
    told = on_ranks(2, _tell, EVERY_STEPS)
    assert told[0] == {
        f"rank_seconds/{rank}:{phase}": rank + 0.125 * number
        for rank in range(2)
        for number, phase in enumerate(Phase)
    }
    assert on_ranks(2, _tell, EVERY_STEPS + 1) == [{}, {}]
    assert on_ranks(1, _tell, EVERY_STEPS) == [{}]


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_cycles_of_a_step_are_freed_after_it_and_older_ones_at_the_common_step() -> None:
    with garbage.collected_together():
        assert not gc.isenabled()
        old, young = _Cycle(), _Cycle()
        kept, left = weakref.ref(old), weakref.ref(young)
        garbage.collect_at(198)
        del old
        garbage.collect_at(199)
        assert kept() is not None
        del young
        garbage.collect_at(200)
        assert kept() is None and left() is None
        left = weakref.ref(_Cycle())
        garbage.collect_at(201)
        assert left() is None
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
