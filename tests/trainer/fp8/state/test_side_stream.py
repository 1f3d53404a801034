"""Work submitted to the side stream runs in order, in parallel with training,
and not at all after a failure."""

from threading import Event, get_ident

import pytest
import torch

from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import make_mesh
from trainwright_trainer.fp8.state.side_stream import SideStream

CPU = torch.device("cpu")


def _side_stream(ranks: int) -> SideStream:
    """One rank's side stream. It runs no collectives, so the other ranks need not exist."""
    return SideStream(make_mesh(0, Degrees(replicas=ranks), CPU).data)


def test_work_is_done_in_order_while_training_continues() -> None:
    stream, go, done = _side_stream(2), Event(), []

    def first() -> None:
        assert go.wait(10)
        done.append(get_ident())

    stream.submit(first, [])
    stream.submit(lambda: done.append(2), [])
    assert done == []
    go.set()
    stream.wait()
    assert done[1:] == [2] and done[0] != get_ident()


def test_a_single_rank_does_the_work_immediately() -> None:
    stream, done = _side_stream(1), []
    stream.submit(lambda: done.append(get_ident()), [])
    assert done == [get_ident()]
    stream.wait()


def test_after_a_failure_no_work_is_done_and_the_first_error_is_raised() -> None:
    stream, done = _side_stream(2), []

    def fail() -> None:
        raise ArithmeticError("the first")

    def fail_too() -> None:
        raise ArithmeticError("the second")

    stream.submit(lambda: done.append(1), [])
    for work in (fail, fail_too, lambda: done.append(2)):
        stream.submit(work, [])
    with pytest.raises(ArithmeticError, match="the first"):
        stream.wait()
    stream.submit(lambda: done.append(3), [])
    stream.wait()
    assert done == [1]
