"""What the layout of a run comes to, before it starts."""

from __future__ import annotations

from typing import Literal

from trainwright.contracts.base import Envelope
from trainwright.contracts.parallelism_spec import PipelineSchedule


class PlannedRank(Envelope):
    """Where a rank stands in the mesh."""

    rank: int
    pipeline: int
    data: int
    tensor: int


class PlannedStage(Envelope):
    """A stage of the pipeline; without one there is a single stage."""

    stage: int
    rank: int
    """Pipeline rank that holds it."""

    first_layer: int
    layers: int
    embedding: bool
    """Whether it has the embedding too."""

    loss: bool
    """Whether it has the head and the loss too."""


class PlannedMemory(Envelope):
    """Bytes of the tensors of one pipeline rank, on each of its data and tensor ranks, when they are most."""

    rank: int
    """Pipeline rank."""

    total: int
    """On the device."""

    weights: int
    copies: int
    """Of weights: casts for products, FP8 copies, weights that were gathered."""

    gradients: int
    optimizer: int
    activations: int
    """Of the micro batches in flight."""

    gathered: int
    """Inputs of products, which tensor ranks hold whole."""

    loss: int
    transfers: int
    """What stages hand each other."""

    host: int
    """In the node's memory instead of the device's."""


class PlannedAction(Envelope):
    """One thing that a pipeline rank does. Times are in units of one layer's forward pass."""

    kind: Literal["F", "B", "I", "W"]
    """Forward; backward; its two halves: the input's gradient, the weights' gradients."""

    stage: int
    micro_batch: int
    start: float
    end: float


class RunPlan(Envelope):
    """What the layout of a run comes to."""

    pipeline: int
    data: int
    shard: int
    tensor: int
    stages_per_rank: int
    schedule: PipelineSchedule
    micro_batches: int
    """Of a step, on each data rank."""

    ranks: list[PlannedRank]
    stages: list[PlannedStage]
    stages_are_measured: bool
    """Whether stages will be chosen when the run starts; those here are for ranks of equal speed."""

    memory: list[PlannedMemory]
    slot_bytes: int | None = None
    """Memory of the smallest slot that the run may get: of a GPU, or a CPU slot's share of its node's; null when unknown."""

    slot_node: str | None = None
    """The node that has this slot."""

    host_bytes: int = 0
    """What all ranks of a node put into its own memory, by offload."""

    host_node_bytes: int | None = None
    """Own memory of the largest node that the run may get; null when unknown."""

    host_node: str | None = None
    """The node that has it."""

    warnings: list[str] = []
    """Why the run may fail although it is accepted: a rank that needs more memory than the slot has, offload of more than
    the node has."""

    timeline: list[list[PlannedAction]]
    """Of each pipeline rank; the first micro batches where there are very many."""

    bubble_fraction: float
    """Share of the ranks' time in a step in which they wait for each other."""
