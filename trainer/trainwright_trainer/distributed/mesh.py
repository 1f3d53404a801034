"""The ranks of a training and their axes.

One process per device. The ranks form a grid of pipeline × replica × shard × tensor (``contracts.parallelism_spec``),
and an ``Axis`` is this rank's line through it: the ranks that differ from it in that coordinate only. Code that shards
over ranks gets one axis and uses no other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.distributed as dist

from trainwright.contracts.job_spec import JobSpec
from trainwright.contracts.parallelism_spec import Coordinates, Degrees
from trainwright.contracts.rank_progress import AxisName, lines_along
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.process_group import init_process_group
from trainwright_trainer.distributed.progress_counters import ProgressCounters
from trainwright_trainer.distributed.shard_spec import assign_owners
from trainwright_trainer.runtime.devices import order_gpus_by_pci_bus


@dataclass(frozen=True)
class Mesh:
    """This rank's coordinates in the grid, and its axes."""

    world: Axis
    degrees: Degrees
    on_node: range
    """The ranks of this node."""

    @property
    def rank(self) -> int:
        return self.world.rank

    @property
    def leads_node(self) -> bool:
        """Whether this is the first rank of its node, which writes what the node's agent reads."""
        return self.rank == self.on_node.start

    @property
    def ranks(self) -> int:
        return self.world.ranks

    @property
    def device(self) -> torch.device:
        return self.world.device

    @property
    def progress(self) -> ProgressCounters:
        """Where this rank publishes what it does."""
        return self.world.progress

    @cached_property
    def coordinates(self) -> Coordinates:
        return self.degrees.coordinates(self.rank)

    @cached_property
    def tensor(self) -> Axis:
        """Ranks with different shards of the same matrices, which see the same sequences."""
        return self._axis(AxisName.TENSOR)

    @cached_property
    def shard(self) -> Axis:
        """Data ranks that together have one copy of what is sharded over data ranks."""
        return self._axis(AxisName.SHARD)

    @cached_property
    def replicas(self) -> Axis:
        """Data ranks with the same shard."""
        return self._axis(AxisName.REPLICAS)

    @cached_property
    def data(self) -> Axis:
        """Ranks with the same part of the model, which see different sequences; shards of a replica are
        neighbours.
        """
        return self._axis(AxisName.DATA)

    @cached_property
    def pipeline(self) -> Axis:
        """Ranks with the stages of one pipeline."""
        return self._axis(AxisName.PIPELINE)

    @cached_property
    def model(self) -> Axis:
        """Ranks that together have one copy of the model: one pipeline with its tensor groups."""
        return self._axis(AxisName.MODEL)

    @cached_property
    def stage(self) -> Axis:
        """Ranks with the same layers: the data axis with its tensor groups."""
        return self._axis(AxisName.STAGE)

    @cached_property
    def alone(self) -> Axis:
        """This rank."""
        return replace(self.world, lines=((self.rank,),))

    @cached_property
    def stage_beside_passes(self) -> Axis:
        """``stage`` for a thread that communicates while the passes of a model-parallel run use the other axes."""
        name = AxisName.STAGE_BESIDE_PASSES
        return replace(self.stage, own_group=True, name=name) if self.model.ranks > 1 else self.stage

    def create_groups(self, beside_passes: bool) -> None:
        """Create every process group of this mesh; all ranks call this at the same point of their start.

        Args:
            beside_passes: whether ``stage_beside_passes`` is used.
        """
        axes = (self.tensor, self.shard, self.replicas, self.data, self.pipeline, self.model, self.stage)
        with self.world.groups.creating():
            for axis in (*axes, self.stage_beside_passes) if beside_passes else axes:
                _ = axis.group

    def share_of_writing(self, sizes: Mapping[str, int], axis: Axis) -> set[str]:
        """The weights that this rank writes to checkpoints, among those that all ranks of ``axis`` have.

        The ranks on the node of the first one divide them. If other nodes wrote too, a checkpoint would be lost with any of
        them that fails before its part is shipped.

        Args:
            sizes: the weights' sizes, by name.
        """
        if axis.global_ranks[0] not in self.on_node:
            return set()
        writers = [rank for rank in axis.global_ranks if rank in self.on_node]
        owners = assign_owners(sizes, len(writers))
        return {name for name, owner in owners.items() if writers[owner] == self.rank}

    def destroy(self) -> None:
        if self.ranks > 1:
            dist.destroy_process_group()

    def _axis(self, name: AxisName) -> Axis:
        """This rank's line through the grid in which only some coordinates differ."""
        return replace(self.world, lines=lines_along(name, self.degrees), name=name)


def join_mesh(job: JobSpec, progress: ProgressCounters | None = None) -> Mesh:
    """The mesh of this process, at the rank that the launcher wrote into the environment.

    Args:
        job: what to train.
        progress: where the rank publishes its progress; None for nowhere.
    """
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = _device(job, rank - job.local_ranks.start)
    if ranks > 1:
        init_process_group(device)
    return make_mesh(rank, job.spec.degrees, device, job.local_ranks, progress)


def make_mesh(
    rank: int,
    degrees: Degrees,
    device: torch.device,
    on_node: range | None = None,
    progress: ProgressCounters | None = None,
) -> Mesh:
    """The mesh as seen by global rank ``rank``. With several ranks, the process group must exist.

    Args:
        device: of a GPU, with its index: generators, streams and communicators are looked up by it.
        on_node: the ranks of this node; None for all.
        progress: where the rank publishes its progress; None for nowhere.
    """
    assert device.type != "cuda" or device.index is not None, "a GPU without an index"
    world = Axis((tuple(range(degrees.ranks)),), rank, device, progress=progress or ProgressCounters())
    return Mesh(world, degrees, range(degrees.ranks) if on_node is None else on_node)


def single_rank_mesh(device: torch.device) -> Mesh:
    """A mesh of one rank."""
    return make_mesh(0, Degrees(), device)


def _device(job: JobSpec, local_rank: int) -> torch.device:
    if job.device == "cpu":
        torch.set_num_threads(job.threads_per_rank)
        return torch.device("cpu")
    order_gpus_by_pci_bus()
    device = torch.device("cuda", job.slots[local_rank])
    torch.cuda.set_device(device)
    return device
