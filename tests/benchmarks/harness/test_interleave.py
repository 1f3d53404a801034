"""Contenders run their steps alternately, and only their own time counts."""

from pathlib import Path

import pytest

from tests.benchmarks.harness import interleave
from tests.benchmarks.trainer.shapes import TOY

pytestmark = pytest.mark.slow(target="bench-dry")

IDLE = "tests.benchmarks.harness.idle_contenders"


def _request(folder: Path) -> interleave.Request:
    return interleave.Request(
        folder=folder, model=TOY.model, vocabulary=8, batch=TOY.batch, steps=9, threads=1
    )


def test_neither_waiting_nor_cleaning_up_is_timed(tmp_path: Path) -> None:
    contenders = {name: interleave.Contender(IDLE, name) for name in ("slow", "quick")}
    spent = interleave.in_turn(contenders, _request(tmp_path), warm_up=1, rounds=2, steps=2)
    assert [len(item.wall) for item in spent.values()] == [8, 8]
    assert min(spent["slow"].wall) >= 0.02 > spent["quick"].wall_median()
    assert spent["slow"].cpu_median() < 0.02  # it sleeps


def test_a_contender_that_exits_early_is_reported(tmp_path: Path) -> None:
    contenders = {"ends": interleave.Contender(IDLE, "ends")}
    with pytest.raises(RuntimeError, match=r"contenders\.ends ended with code 3"):
        interleave.in_turn(contenders, _request(tmp_path), warm_up=1, rounds=1)
