"""The parts of the trainer's rows: shapes, processes of other trainers, counted bytes."""

from pathlib import Path

import pytest

from tests.benchmarks.trainer import communication, peer_trainers
from tests.benchmarks.trainer.shapes import SHAPES, TOY

dry_run = pytest.mark.slow(target="bench-dry")


def test_shapes_have_as_many_parameters_as_their_names_say() -> None:
    billions = {name: shape.parameters / 1e9 for name, shape in SHAPES.items()}
    expected = {"1.3b": 1.35, "3b": 3.37, "7b": 6.74, "8b": 8.03, "peer": 1.53}
    assert billions == pytest.approx(expected, abs=0.01)
    assert all(shape.tokens_per_step >= 16_384 for name, shape in SHAPES.items() if name != "8b")


@dry_run
def test_a_trainer_in_a_separate_process_returns_the_seconds_of_its_timed_steps(tmp_path: Path) -> None:
    request = peer_trainers.Request(
        model=TOY.model, vocabulary=TOY.vocabulary, batch=TOY.batch, warm_up=1, timed=2, folder=tmp_path
    )
    seconds = peer_trainers.steps_in_a_process(peer_trainers.OURS, request)
    assert len(seconds) == 2
    assert all(second > 0 for second in seconds)


@dry_run
@pytest.mark.parametrize(("level", "what"), [("O1", "gradients"), ("O3", "weights")])
def test_bytes_are_counted_at_the_collectives(level: str, what: str) -> None:
    shape = communication.MICRO.with_batch(1, 2)
    ours, peer = communication.count(level, what, 2, shape)
    # FP8 values alone are half of the peer's bytes: less would mean that a collective was missed.
    assert 0.5 <= ours / peer <= 0.51
