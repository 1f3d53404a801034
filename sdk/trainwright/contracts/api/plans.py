"""The plan of a run's layout, before it starts."""

from __future__ import annotations

from typing import Literal

from trainwright.contracts.base import Envelope
from trainwright.contracts.parallelism_spec import PipelineSchedule


class PlannedRank(Envelope):
    """Position of a rank in the mesh."""

    rank: int
    pipeline: int
    data: int
    tensor: int


class PlannedStage(Envelope):
    """A stage of the pipeline. Without pipeline parallelism there is a single stage."""

    stage: int
    rank: int
    """Pipeline rank of the stage."""

    first_layer: int
    layers: int
    embedding: bool
    """Whether it includes the embedding."""

    loss: bool
    """Whether it includes the head and the loss."""


class PlannedMemory(Envelope):
    """Peak bytes of the tensors of a pipeline rank, on each of its data and tensor ranks."""

    rank: int
    """Pipeline rank."""

    total: int
    """Bytes on the device."""

    weights: int
    copies: int
    """Copies of weights: casts for matmuls, FP8 copies, gathered weights."""

    gradients: int
    optimizer: int
    activations: int
    """Activations of the micro batches in flight."""

    gathered: int
    """Inputs of matmuls, gathered from all tensor ranks."""

    loss: int
    transfers: int
    """Buffers that stages send to each other."""

    snapshot: int = 0
    """On CPUs, the copy of the state that checkpoints are written from, allocated by the first one."""

    host: int
    """Host memory of a GPU's rank: what offload keeps there, and the copy of the state that checkpoints are written from."""


class PlannedAction(Envelope):
    """One action of a pipeline rank. Times are in units of one layer's forward pass."""

    kind: Literal["F", "B", "I", "W"]
    """Forward; backward; and its two halves: input gradient, weight gradients."""

    stage: int
    micro_batch: int
    start: float
    end: float


class RunPlan(Envelope):
    """The plan of a run's layout."""

    pipeline: int
    data: int
    shard: int
    tensor: int
    stages_per_rank: int
    schedule: PipelineSchedule
    micro_batches: int
    """Micro batches of a step on each data rank."""

    ranks: list[PlannedRank]
    stages: list[PlannedStage]
    stages_are_measured: bool
    """Whether stages will be chosen by measurement when the run starts; those here assume equally fast ranks."""

    memory: list[PlannedMemory]
    slot_bytes: int | None = None
    """Memory of the smallest slot that the run may get: of a GPU, or a CPU slot's share of its node. Null if unknown."""

    slot_node: str | None = None
    """The node with this slot."""

    largest_bytes: int | None = None
    """The most memory that any joined node could give each rank: of a GPU, or of a CPU node on which no other run is. Null if
    unknown."""

    slot_device: str | None = None
    """`cuda` or `cpu`: what kind of slot it is. Null if its memory is unknown."""

    host_bytes: int = 0
    """Host memory of all ranks of a node: for the copies of their state that checkpoints are written from, and for offload."""

    host_node_bytes: int | None = None
    """Host memory of the largest node that the run may get. Null if unknown."""

    host_node: str | None = None
    """The node with this memory."""

    warnings: list[str] = []
    """Why the run may fail although it is valid: a rank needs more memory than its slot has, or the ranks of a node
    need more host memory than it has."""

    too_large: str | None = None
    """Why no joined node can run it: a rank needs more memory than any node could give it. Null if one can, or if no node
    reported its memory."""

    export_loaded_by: str = ""
    """What loads the export: a class of `transformers`, or the file that comes with it. A sentence."""

    what_decays: str = ""
    """How many weights decay, and which. A sentence."""

    learning_rates: str = ""
    """The learning rates at the peak and how many weights have them. A sentence, empty if all weights have one learning rate."""

    timeline: list[list[PlannedAction]]
    """Actions of each pipeline rank; only the first micro batches if there are very many."""

    bubble_fraction: float
    """Fraction of a step during which ranks wait for each other."""


class GpuModel(Envelope):
    """A GPU that a run can be planned for, even if no node has it."""

    name: str
    """The name that its driver reports."""

    memory_bytes: int
    capability: str
    """Compute capability, such as `9.0`."""

    peaks: dict[str, float]
    """The vendor's FLOP/s for dense matmuls, by precision. A precision that the GPU does not support has no entry."""


class WhatIf(Envelope):
    """The plan of a run on GPUs that need not exist on any node."""

    gpu: GpuModel
    nodes: int
    slots_per_node: int
    plan: RunPlan
    """`too_large` says why it would not fit."""

    flops: float
    """FLOPs of the training, as in `RunEstimate`."""

    assumed_mfu: float
    """The fraction of the peak on which the time is based. It is an assumption, not a measurement."""

    seconds: float | None
    """Estimated time at that fraction; null if the GPU's peak for this precision is unknown."""
