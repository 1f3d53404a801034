"""The progress that a rank publishes."""

from pathlib import Path

import torch

from tests.trainer.ranks import on_mesh
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.rank_progress import (
    PROGRESS_BYTES,
    REMEMBERED,
    AxisName,
    Operation,
    RankActivity,
    read_progress,
)
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.distributed.progress_counters import counted, publish_progress


def test_a_reader_sees_a_published_position_immediately(tmp_path: Path) -> None:
    file = tmp_path / "progress" / "rank-0"
    progress = publish_progress(file)
    progress.begin_step(12)
    progress.count_section()
    progress.count_message()
    for _ in range(REMEMBERED + 3):
        progress.enter(AxisName.DATA, Operation.ALL_REDUCE)
        progress.leave(AxisName.DATA)
    progress.enter(AxisName.DATA, Operation.BROADCAST)
    seen = read_progress(file.read_bytes())
    assert seen is not None
    assert (seen.step, seen.activity, seen.sections, seen.messages) == (12, RankActivity.STEP, 1, 1)
    (data,) = seen.axes
    assert (data.axis, data.entered, data.left) == (AxisName.DATA, REMEMBERED + 4, REMEMBERED + 3)
    assert data.operation(REMEMBERED + 4) is Operation.BROADCAST
    assert data.operation(REMEMBERED + 3) is data.operation(5) is Operation.ALL_REDUCE
    assert data.operation(4) is None, "too long ago"
    assert data.operation(REMEMBERED + 5) is None, "not entered yet"
    progress.set_activity(RankActivity.SAVING)
    assert read_progress(file.read_bytes()) == seen.model_copy(update={"activity": RankActivity.SAVING})


def test_each_validation_batch_is_progress_even_on_a_single_rank(tmp_path: Path) -> None:
    """A single rank has no collectives, so a long validation would otherwise look like a hang."""
    file = tmp_path / "rank-0"
    progress = publish_progress(file)
    progress.set_activity(RankActivity.VALIDATION)
    seen = []
    for batch in counted(range(3), progress):
        content = read_progress(file.read_bytes())
        assert content is not None
        seen.append((batch, content.messages))
    assert seen == [(0, 1), (1, 2), (2, 3)]


def test_the_file_of_an_earlier_attempt_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "rank-0"
    publish_progress(file).begin_step(40)
    publish_progress(file)
    seen = read_progress(file.read_bytes())
    assert seen is not None
    assert (seen.step, seen.activity) == (0, RankActivity.STARTING)


def _collectives(mesh: Mesh, folder: Path) -> None:
    """Enters each collective of two axes once, and reads its own file."""
    file = folder / f"rank-{mesh.rank}"
    mesh = make_mesh(mesh.rank, mesh.degrees, mesh.device, progress=publish_progress(file))
    data, tensor, part = mesh.data, mesh.tensor, torch.ones(2)
    works = [data.all_reduce_async(torch.ones(2))]
    pending = data.broadcast_all_async([(0, torch.ones(2)), (1, torch.ones(3))])
    works.append(data.reduce_async(torch.ones(2), 0))
    started = read_progress(file.read_bytes())
    assert started is not None
    assert (started.on(AxisName.DATA).entered, started.on(AxisName.DATA).left) == (3, 0)
    for work in works:
        data.wait(work)
    data.wait_all(pending)
    data.wait_all(data.broadcast_all_async([]))
    tensor.all_reduce(part)
    tensor.all_reduce_max(part)
    tensor.all_gather(part)
    tensor.all_gather_into(torch.ones(2, 2))
    tensor.wait_tensor(tensor.all_gather_async(part))
    tensor.reduce_scatter(part)
    tensor.wait_tensor(tensor.reduce_scatter_async(part))
    tensor.broadcast(part, 0)
    tensor.all_to_all(torch.ones(2, 1), [1, 1], [1, 1])
    seen = read_progress(file.read_bytes())
    assert seen is not None
    counts = {count.axis: count for count in seen.axes}
    assert {axis: (count.entered, count.left) for axis, count in counts.items()} == {
        AxisName.DATA: (3, 3),
        AxisName.TENSOR: (9, 9),
    }
    assert counts[AxisName.DATA].operations == ["all_reduce", "broadcast", "reduce"]
    assert counts[AxisName.TENSOR].operations == [
        *("all_reduce", "all_reduce", "all_gather", "all_gather", "all_gather"),
        *("reduce_scatter", "reduce_scatter", "broadcast", "all_to_all"),
    ]


def test_every_collective_is_counted_on_its_axis(tmp_path: Path) -> None:
    on_mesh(Degrees(replicas=2, tensor=2), _collectives, tmp_path)


def test_disk_space_for_the_file_is_allocated_at_the_start(tmp_path: Path) -> None:
    """Otherwise a write on a full disk would kill the rank in the middle of a step."""
    publish_progress(tmp_path / "rank-0")
    assert (tmp_path / "rank-0").stat().st_blocks * 512 >= PROGRESS_BYTES
