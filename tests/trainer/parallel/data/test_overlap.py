"""Gradients are reduced while earlier layers still compute, and weights arrive while earlier blocks compute."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import BASE, BUCKET_BYTES, one_step, start
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.state.side_stream import SideStream
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.parallel.data import gradient_buckets
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training import materialize

GRADIENT, SENT, BROADCAST, WAITED, BLOCK = "gradient", "sent", "broadcast", "waited", "block"


def _record_events(mesh: Mesh, job_file: Path) -> list[list[str]]:
    """Events on this rank in two steps of one micro batch, in order."""
    gradient_buckets.BUCKET_BYTES = BUCKET_BYTES
    materialize.FP8Updater = partial(FP8Updater, bucket_elements=BUCKET_BYTES)
    training = start(mesh, job_file)
    events: list[str] = []
    for weight in training.engine.model.parameters():
        weight.register_post_accumulate_grad_hook(lambda _: events.append(GRADIENT))
    for owner, method, word in (
        (Axis, "all_reduce_async", SENT),
        (Axis, "reduce_async", SENT),
        (SideStream, "submit", SENT),
        (Axis, "broadcast_all_async", BROADCAST),
        (Axis, "wait", WAITED),
        (Axis, "wait_all", WAITED),
    ):
        _listen(owner, method, partial(events.append, word))
    for block in training.engine.model.layers.values():
        block.register_forward_hook(lambda *_: events.append(BLOCK))
    one_step(training, 1)
    first = events.copy()
    events.clear()
    one_step(training, 2)
    return [first, events]


def _bytes_sent(mesh: Mesh, job_file: Path) -> tuple[int, int]:
    """Bytes that owners broadcast after an update, and the elements of the matrices of blocks."""
    training = start(mesh, job_file)
    send, sent = Axis.broadcast_all_async, []

    def heard(axis: Axis, tensors: Sequence[tuple[int, Tensor]]) -> Any:
        sent.extend(tensor.nbytes for _, tensor in tensors)
        return send(axis, tensors)

    Axis.broadcast_all_async = heard
    one_step(training, 1)
    weights = training.engine.model.layers.parameters()
    return sum(sent), sum(weight.numel() for weight in weights if weight.ndim > 1)


def _listen(owner: type, method: str, events: Any) -> None:
    right = getattr(owner, method)

    def heard(*given: Any) -> Any:
        events()
        return right(*given)

    setattr(owner, method, heard)


FP8 = {"precision": {"kind": "fp8", "compile": "off", "fp8": {"level": "O2"}}}
LAYOUTS: dict[str, dict[str, Any]] = {
    "data 2": {},
    "ZeRO 1": {"parallelism": {"zero_stage": 1}},
    "ZeRO 2": {"parallelism": {"zero_stage": 2}},
    "O2, data 2": FP8,
}


@pytest.fixture(scope="module")
def events(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """Events of each step on the first rank, by layout."""
    found = {}
    for layout, sections in LAYOUTS.items():
        spec = {name: BASE.get(name, {}) | sections.get(name, {}) for name in BASE | sections}
        spec["batch"] = BASE["batch"] | {"micro_sequences": 4}
        path = write_job(tmp_path_factory.mktemp("job"), data, 2, **spec)
        found[layout] = on_mesh(read_job(path).spec.degrees, _record_events, path)[0]
    return found


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bucket_is_reduced_before_the_backward_pass_ends(
    layout: str, events: dict[str, list[list[str]]]
) -> None:
    """The first bucket is sent before most gradients are computed, a middle one before many."""
    happened = [word for word in events[layout][0] if word in (GRADIENT, SENT)]
    still_to_come = [happened[at:].count(GRADIENT) for at, word in enumerate(happened) if word == SENT]
    assert len(still_to_come) >= 3
    assert still_to_come[0] > happened.count(GRADIENT) / 2
    assert still_to_come[len(still_to_come) // 2] > happened.count(GRADIENT) / 5


def test_owners_broadcast_their_weights_concurrently(events: dict[str, list[list[str]]]) -> None:
    happened = events["ZeRO 1"][0]
    first, last = happened.index(BROADCAST), len(happened) - 1 - happened[::-1].index(BROADCAST)
    assert happened[first : last + 1] == [BROADCAST] * happened.count(BROADCAST)
    assert happened.count(BROADCAST) >= 2


@pytest.mark.parametrize("layout", ["ZeRO 1", "ZeRO 2"])
def test_a_block_waits_only_for_its_own_weights(layout: str, events: dict[str, list[list[str]]]) -> None:
    second = events[layout][1]
    forward = second[: second.index(GRADIENT)]
    waits_before = [forward[:at].count(WAITED) for at, word in enumerate(forward) if word == BLOCK]
    assert len(waits_before) == BASE["model"]["layers"]
    assert waits_before[0] > 0
    assert all(earlier < later for earlier, later in pairwise(waits_before))


def test_matrices_are_sent_in_bfloat16_where_matmuls_read_casts(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sent = {}
    for kind in ("fp32", "bf16"):
        spec = BASE | {"parallelism": {"zero_stage": 1}, "precision": {"kind": kind}}
        path = write_job(tmp_path_factory.mktemp("job"), data, 2, **spec)
        sent[kind], matrices = on_mesh(read_job(path).spec.degrees, _bytes_sent, path)[0]
    assert sent["fp32"] - sent["bf16"] == 2 * matrices
