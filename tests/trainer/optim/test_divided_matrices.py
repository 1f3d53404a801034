"""Matrices divided among ranks: each is computed once, on whichever axes its parts are."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tests.trainer.ranks import on_mesh
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import Slice, row_shard
from trainwright_trainer.optim import divided_matrices
from trainwright_trainer.optim.divided_matrices import DividedMatrices

SHAPES = {"long": (24, 8), "wide": (8, 40), "few rows": (2, 16), "square": (12, 12), "whole": (6, 10)} | {
    f"layer {layer}": (16, 16) for layer in range(9)
}
SPLIT_DIM = {"long": 0, "wide": 1, "few rows": 0, "square": 1} | {
    f"layer {layer}": layer % 2 for layer in range(9)
}
"""What tensor ranks divide; they all have the matrix ``whole``."""

MESHES = {
    "alone": Degrees(),
    "copies": Degrees(replicas=3),
    "rows": Degrees(shard=4),
    "slices": Degrees(tensor=2),
    "copies of rows": Degrees(replicas=2, shard=2),
    "copies of slices": Degrees(replicas=2, tensor=2),
    "rows of slices": Degrees(shard=3, tensor=2),
    "all": Degrees(replicas=2, shard=2, tensor=2),
}


class Computed(NamedTuple):
    """What a rank reports."""

    parts: dict[str, tuple[Slice, Tensor]]
    computed: list[Tensor]
    """Matrices that it computed."""

    collectives: int


def matrix(name: str) -> Tensor:
    number = list(SHAPES).index(name)
    return torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(number))


def sorted_rows(matrix: Tensor) -> Tensor:
    """A function of the entire matrix that rounds nothing."""
    return (matrix / matrix.abs().max()).sort(0).values.flip(1)


def slice_of(name: str, tensor: Axis) -> Slice:
    shape, offset, dim = list(SHAPES[name]), [0, 0], SPLIT_DIM.get(name)
    if dim is not None:
        shape[dim] //= tensor.ranks
        offset[dim] = shape[dim] * tensor.rank
    return Slice(SHAPES[name], tuple(offset), tuple(shape))


def compute(mesh: Mesh, dtype: torch.dtype, buffer_bytes: int) -> Computed:
    divided_matrices.BUFFER_BYTES = buffer_bytes
    slices = {name: slice_of(name, mesh.tensor) for name in SHAPES}
    boxes = {name: row_shard(box, mesh.shard.rank, mesh.shard.ranks) for name, box in slices.items()}
    parts = {name: matrix(name)[box.slices].clone() for name, box in boxes.items() if box.shape[0]}
    computed: list[Tensor] = []
    collectives = 0

    def compute_one(given: Tensor) -> Tensor:
        computed.append(given.clone())
        return sorted_rows(given)

    def count(method: str) -> None:
        real = getattr(Axis, method)

        def counting(axis: Axis, *arguments: object) -> object:
            nonlocal collectives
            collectives += axis.ranks > 1
            return real(axis, *arguments)

        pytest.MonkeyPatch().setattr(Axis, method, counting)  # the process ends with the test

    divided = DividedMatrices(slices, mesh.replicas, mesh.shard, mesh.tensor)
    for method in ("all_to_all", "all_gather", "all_reduce", "broadcast"):
        count(method)
    divided.replace(parts, compute_one, dtype)
    return Computed({name: (boxes[name], part) for name, part in parts.items()}, computed, collectives)


@cache
def results(layout: str, dtype: torch.dtype = torch.float32, buffer_bytes: int = 2**20) -> list[Computed]:
    return on_mesh(MESHES[layout], compute, dtype, buffer_bytes)


def wrong(results: list[Computed], dtype: torch.dtype) -> list[str]:
    """What ranks have that is not a part of the result, and matrices that were not computed once."""
    computed = [one for result in results for one in result.computed]
    found = [
        name for name in SHAPES if sum(torch.equal(matrix(name).to(dtype), one) for one in computed) != 1
    ]
    for rank, result in enumerate(results):
        for name, (box, part) in result.parts.items():
            if not torch.equal(part, sorted_rows(matrix(name).to(dtype)).float()[box.slices]):
                found.append(f"rank {rank}: {name}")
    return found


@pytest.mark.parametrize("layout", MESHES)
def test_every_rank_gets_its_parts_and_each_matrix_is_computed_once(layout: str) -> None:
    assert not wrong(results(layout), torch.float32)


def test_what_is_sent_in_bfloat16_and_in_several_buffers_is_the_same_on_all_ranks() -> None:
    assert not wrong(results("all", torch.bfloat16, 2**10), torch.bfloat16)


def cost(matrix: Tensor) -> int:
    return matrix.numel() * min(matrix.shape)


@pytest.mark.parametrize("layout", MESHES)
def test_ranks_compute_about_equally_much(layout: str) -> None:
    loads = [sum(map(cost, result.computed)) for result in results(layout)]
    # A rank gets a matrix only while it has the least (FP8-LM, algorithm 1).
    assert max(loads) - min(loads) <= max(cost(matrix(name)) for name in SHAPES)


@pytest.mark.parametrize(
    ("layout", "collectives"),
    [
        ("alone", 0),
        ("copies", 3),  # a buffer of each
        ("rows", 2 * 4),  # to and fro in each round of four matrices
        ("slices", 2 * 8),  # one of them has eight, which cost as much as the six of the other
        ("rows of slices", 4 * 3),
        ("all", 4 * 2 + 2),
    ],
)
def test_matrices_are_sent_together(layout: str, collectives: int) -> None:
    assert [result.collectives for result in results(layout)] == [collectives] * MESHES[layout].ranks
