"""Every rank's seconds reach rank 0."""

from tests.trainer.ranks import on_ranks
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
