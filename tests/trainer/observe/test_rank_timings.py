"""Every rank's timings reach rank 0."""

from tests.trainer.ranks import on_ranks
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.observe.rank_timings import EVERY_STEPS, rank_seconds
from trainwright_trainer.observe.step_timer import Timing


def _report(mesh: Mesh, step: int) -> dict[str, float]:
    timings = {timing: mesh.rank + 0.125 * number for number, timing in enumerate(Timing)}
    return rank_seconds(mesh.world, step, timings)


def test_timings_of_all_ranks_are_reported_every_few_steps() -> None:
    results = on_ranks(2, _report, EVERY_STEPS)
    assert results[0] == {
        f"rank_seconds/{rank}:{timing}": rank + 0.125 * number
        for rank in range(2)
        for number, timing in enumerate(Timing)
    }
    assert on_ranks(2, _report, EVERY_STEPS + 1) == [{}, {}]
    assert on_ranks(1, _report, EVERY_STEPS) == [{}]
