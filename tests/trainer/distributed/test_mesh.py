"""Communication between ranks, and the errors that mean that a rank is lost."""

import os
from dataclasses import replace
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.cuda_stand_in.driver import cuda_stand_in
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.axis import RankLostError
from trainwright_trainer.distributed.mesh import Mesh, join_mesh, make_mesh
from trainwright_trainer.distributed.process_group import CPU_BACKEND, Lines, ProcessGroups
from trainwright_trainer.process.job_file import read_job


def _rank(rank: int, store: str, results: Connection) -> None:
    """Rank 1 leaves after the first sum; rank 0 reports the error that it gets in the second."""
    dist.init_process_group(CPU_BACKEND, init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = make_mesh(rank, Degrees(replicas=2), torch.device("cpu"))
    mesh.world.all_reduce(torch.ones(1))
    if rank == 1:
        os._exit(0)
    try:
        mesh.world.all_reduce(torch.ones(1))
    except Exception as error:
        results.send(type(error))
    os._exit(0)


@pytest.mark.slow(target="layouts")
def test_a_rank_that_exits_is_reported_as_lost_by_the_others(tmp_path: Path) -> None:
    ours, theirs = get_context("spawn").Pipe()
    ranks = [
        get_context("spawn").Process(target=_rank, args=(rank, str(tmp_path / "store"), theirs))
        for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    assert ours.poll(60)
    assert ours.recv() is RankLostError
    for process in ranks:
        process.join()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), torch.OutOfMemoryError),
        (RuntimeError("The size of tensor a (2) must match the size of tensor b (3)"), RuntimeError),
        (dist.DistBackendError("NCCL error: remote process exited"), RankLostError),
        (RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection reset"), RankLostError),
    ],
)
def test_only_a_lost_connection_means_a_lost_rank(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception]
) -> None:
    def fail(tensor: torch.Tensor, group: object) -> None:
        raise raised

    monkeypatch.setattr(dist, "all_reduce", fail)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    with pytest.raises(RuntimeError) as caught:
        make_mesh(0, Degrees(replicas=2), torch.device("cpu")).world.all_reduce(torch.ones(1))
    assert caught.type is expected


def test_ranks_wait_for_a_slow_checkpoint(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 GB at 20 MB a second, the speed of a slow shared disk, take 83 minutes."""
    given: list[tuple[str, timedelta]] = []
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", lambda backend, timeout: given.append((backend, timeout)))
    threads = torch.get_num_threads()
    join_mesh(read_job(write_job(tmp_path, data, ranks=2)))
    torch.set_num_threads(threads)
    ((backend, timeout),) = given
    assert backend == CPU_BACKEND and timeout > timedelta(minutes=83)


def _communicate_concurrently(mesh: Mesh) -> list[tuple[int, bool]]:
    """Threads of the group of all ranks and of one created for an axis,
    and whether concurrent collectives all complete."""
    return [
        _in_flight(axis.group, mesh.rank)
        for axis in (mesh.world, replace(mesh.world, own_group=True, groups=ProcessGroups()))
    ]


def _in_flight(group: dist.ProcessGroup | None, rank: int) -> tuple[int, bool]:
    assert group is not None
    gather, wait = torch.ops._c10d_functional.all_gather_into_tensor, torch.ops._c10d_functional.wait_tensor
    sums = [torch.full((3,), float(number)) for number in range(8)]
    works = [dist.all_reduce(item, group=group, async_op=True) for item in sums]
    parts = [gather(torch.tensor([10 * number + rank]), 2, group.group_name) for number in range(8)]
    whole = [wait(part).tolist() for part in parts]
    for work in works:
        work.wait()
    right = whole == [[10 * number, 10 * number + 1] for number in range(8)]
    right = right and [item.tolist() for item in sums] == [[2.0 * number] * 3 for number in range(8)]
    options = group._get_backend(torch.device("cpu")).options
    return options._threads, right


def test_a_gloo_group_completes_collectives_on_one_thread() -> None:
    """Compiled graphs gather concurrently. Two collectives that finish at once may free one string twice,
    too rarely for a test to notice."""
    assert on_mesh(Degrees(replicas=2), _communicate_concurrently) == [[(1, True)] * 2] * 2


def _splits(mesh: Mesh) -> tuple[list[Lines], float]:
    """The splits of the world's communicator that this rank takes part in, and a sum over its tensor axis."""
    with cuda_stand_in():
        split, made = dist.split_group, []

        def recorded(split_ranks: list[list[int]], **given: Any) -> dist.ProcessGroup:
            made.append(tuple(map(tuple, split_ranks)))
            return split(split_ranks, **given)

        dist.split_group = recorded
        on_gpus = make_mesh(mesh.rank, mesh.degrees, torch.device("cuda", mesh.rank % 2))
        on_gpus.create_groups(beside_passes=True)
        own = torch.full((1,), 10.0**mesh.rank, device=on_gpus.device)
        return made, on_gpus.tensor.all_reduce(own).item()


def test_all_ranks_split_the_world_in_the_same_order_and_each_into_all_ranks() -> None:
    degrees = Degrees(replicas=2, tensor=2, pipeline=2)
    found = on_mesh(degrees, _splits)
    (order,) = {tuple(made) for made, _ in found}
    world = tuple(range(8))
    assert all(tuple(sorted(sum(lines, ()))) == world for lines in order)
    # Tensor, data (replicas are the same ranks), pipeline, model, stage, and the stage's for use during the passes.
    assert [len(lines[0]) for lines in order] == [2, 2, 2, 4, 4, 4]
    assert [total for _, total in found] == [11, 11, 1100, 1100, 110000, 110000, 11000000, 11000000]


def _split_in_another_order(mesh: Mesh) -> str:
    """Rank 0 splits the world along its data axis first, the others along their tensor axis."""
    with cuda_stand_in():
        on_gpus = make_mesh(mesh.rank, mesh.degrees, torch.device("cuda", mesh.rank % 2))
        try:
            if mesh.rank == 0:
                _ = on_gpus.data.group
            on_gpus.create_groups(beside_passes=True)
        except AssertionError as error:
            return str(error)
        return "split"


def test_another_order_of_groups_on_one_rank_is_detected() -> None:
    found = on_mesh(Degrees(replicas=2, tensor=2), _split_in_another_order)
    assert found == ["ranks split the world in different ways"] * 4


def _create_a_group_late(mesh: Mesh) -> str:
    """Only rank 0 requests another group after the start. On GPUs it would wait for the others in a split."""
    if mesh.rank:
        return ""
    try:
        return str(replace(mesh.tensor, own_group=True).group)
    except AssertionError as error:
        return str(error)


def test_a_group_that_one_rank_creates_later_is_refused() -> None:
    late, *_ = on_mesh(Degrees(replicas=2, tensor=2), _create_a_group_late)
    assert late == "no group of ((0, 1), (2, 3)) was created at the start, with those of all ranks"
