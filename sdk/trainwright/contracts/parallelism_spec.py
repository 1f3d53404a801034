"""What a run occupies, and how its work is cut over the ranks.

    ranks = pipeline × data × tensor        data = replicas × shard

Ranks are numbered with the tensor axis fastest, then shards, replicas, and pipeline stages last. So the ranks of one tensor
group, which speak most, are neighbours in one node, and the stages of a pipeline, which speak least, may lie far apart.
What goes with what stands in ``layout_rules``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from trainwright.contracts.base import Strict, refused


class Device(StrEnum):
    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class EngineKind(StrEnum):
    NATIVE = "native"
    DEEPSPEED = "deepspeed"


class PipelineSchedule(StrEnum):
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    INTERLEAVED_ZERO_BUBBLE = "interleaved_zero_bubble"
    ZBV = "zbv"

    @property
    def is_zero_bubble(self) -> bool:
        """Weight gradients are computed apart from input gradients, and later."""
        return self in (PipelineSchedule.INTERLEAVED_ZERO_BUBBLE, PipelineSchedule.ZBV)


class StagesKind(StrEnum):
    EVEN = "even"
    AUTO = "auto"


class OffloadKind(StrEnum):
    NONE = "none"
    OPTIMIZER = "optimizer"
    PARAMETERS = "parameters"


class ParallelismSpec(Strict):
    """How the work is cut over the ranks: pipeline × data × tensor degrees make the ranks of the run."""

    data: int | None = Field(default=None, ge=1, le=65_536)
    """Degree of data parallelism: parts of the batch; ranks ÷ (tensor × pipeline) when left empty."""

    shard: int | None = Field(default=None, ge=1, le=65_536)
    """Of the data ranks, those that share one copy of what `zero_stage` cuts; all of them when left empty."""

    zero_stage: Literal[0, 1, 2, 3] = 0
    """What data ranks share instead of copying: 1 optimizer states, 2 gradients too, 3 weights too."""

    tensor: int = Field(default=1, ge=1, le=1_024)
    """Degree of tensor parallelism: parts of each matrix; between products, sequences are cut over the same ranks."""

    tensor_across_nodes: bool = False
    """Let a tensor group span nodes; its collectives are then as slow as the network."""

    tensor_chunks: int = Field(default=1, ge=1, le=64)
    """Chunks of the tokens of a tensor rank: one travels while another is multiplied; 1 waits for the whole."""

    pipeline: int = Field(default=1, ge=1, le=1_024)
    """Degree of pipeline parallelism: groups of ranks that hold consecutive layers."""

    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    """Order of the pipeline's work: `1f1b`, `interleaved`, `interleaved_zero_bubble` or `zbv`."""

    stages_per_rank: int | None = Field(default=None, ge=1, le=64)
    """Stages that each pipeline rank holds: 1 for `1f1b`, 2 for `zbv`; 2 when left empty for the interleaved ones."""

    stages: StagesKind | tuple[int, ...] = StagesKind.EVEN
    """Layers of each stage: `even`, `auto` (by the measured speed and memory of the ranks), or a list such as 2,3,3,2."""

    context: int = Field(default=1, ge=1)
    """Degree of context parallelism."""

    engine: EngineKind = EngineKind.NATIVE
    """What runs a step: `native`, or `deepspeed` (data parallelism with ZeRO and offload to host memory)."""

    offload: OffloadKind = OffloadKind.NONE
    """What `deepspeed` keeps in host memory: nothing, the `optimizer` states, or the `parameters` too."""

    @model_validator(mode="after")
    def _choices_go_together(self) -> Self:
        if self.context != 1:
            raise refused("context", self.context, "does not exist in this version yet: use 1")
        self._check_stages_per_rank()
        if self.tensor_chunks > 1 and self.tensor == 1:
            rule = "cuts what tensor ranks send each other, and tensor is 1: raise tensor, or use 1"
            raise refused("tensor_chunks", self.tensor_chunks, rule)
        if isinstance(self.stages, tuple):
            self._check_stages(self.stages)
        if self.shard is not None and not self.zero_stage:
            raise refused(
                "shard", self.shard, "cuts nothing at zero_stage 0: leave it empty, or raise zero_stage"
            )
        return self

    @property
    def chunks(self) -> int:
        """Stages that each pipeline rank holds."""
        if self.pipeline == 1 or self.schedule is PipelineSchedule.ONE_F_ONE_B:
            return 1
        return self.stages_per_rank or 2

    @property
    def stage_count(self) -> int:
        """Stages of the whole pipeline."""
        return self.pipeline * self.chunks

    def _check_stages_per_rank(self) -> None:
        wanted = {PipelineSchedule.ONE_F_ONE_B: 1, PipelineSchedule.ZBV: 2}.get(self.schedule)
        if self.stages_per_rank is not None and wanted not in (None, self.stages_per_rank):
            rule = f"does not go with schedule {self.schedule}, which has {wanted}: leave it empty"
            raise refused("stages_per_rank", self.stages_per_rank, rule)
        if self.pipeline == 1 and self.schedule is not PipelineSchedule.ONE_F_ONE_B:
            rule = "orders the work of several stages, and pipeline is 1: raise pipeline, or use 1f1b"
            raise refused("schedule", self.schedule.value, rule)

    def _check_stages(self, stages: tuple[int, ...]) -> None:
        shown = ",".join(map(str, stages))
        if len(stages) != self.stage_count:
            rule = f"has {len(stages)} stages, but pipeline × stages_per_rank = {self.stage_count}: give as many numbers"
            raise refused("stages", shown, rule)
        if min(stages) < 1:
            raise refused("stages", shown, "has a stage without a layer: give each at least 1")


class ResourcesSpec(Strict):
    """What the run occupies. One rank runs on each slot."""

    device: Device = Device.AUTO
    """`cuda`, `cpu`, or `auto`: cuda when a joined node has it."""

    nodes: int = Field(default=1, ge=1)
    """Number of nodes."""

    slots_per_node: int = Field(default=1, ge=1, le=1_024)
    """GPUs, or shares of a CPU node's cores, on each node."""

    max_attempts: int | None = Field(default=None, ge=1)
    """End the run as failed after this many attempts, whatever but a pause ended them; no such limit when empty."""

    @model_validator(mode="after")
    def _one_node(self) -> Self:
        if self.nodes != 1:
            raise refused("nodes", self.nodes, "nodes do not exist in this version yet: use 1")
        return self

    @property
    def ranks(self) -> int:
        return self.nodes * self.slots_per_node


@dataclass(frozen=True)
class Degrees:
    """Sizes of the axes of a mesh; they multiply to its ranks."""

    pipeline: int = 1
    replicas: int = 1
    shard: int = 1
    tensor: int = 1

    @property
    def data(self) -> int:
        return self.replicas * self.shard

    @property
    def ranks(self) -> int:
        return self.pipeline * self.data * self.tensor

    def place(self, rank: int) -> Place:
        """Where global rank ``rank`` stands."""
        rank, tensor = divmod(rank, self.tensor)
        rank, shard = divmod(rank, self.shard)
        pipeline, replica = divmod(rank, self.replicas)
        return Place(pipeline, replica, shard, tensor)

    def rank_at(self, place: Place) -> int:
        """The global rank at ``place``."""
        outer = place.pipeline * self.replicas + place.replica
        return (outer * self.shard + place.shard) * self.tensor + place.tensor


@dataclass(frozen=True)
class Place:
    """Coordinates of one rank in the mesh."""

    pipeline: int
    replica: int
    shard: int
    tensor: int


def degrees_of(spec: ParallelismSpec, ranks: int) -> Degrees:
    """The degrees of a run over ``ranks`` ranks.

    Raises:
        PydanticCustomError: naming the field below ``parallelism`` that does not fit and the nearest that does.
    """
    model = spec.tensor * spec.pipeline
    data, rest = divmod(ranks, model)
    if rest or not data:
        rule = (
            f"× pipeline {spec.pipeline} = {model} does not divide the {ranks} ranks "
            f"(resources.nodes × resources.slots_per_node): {_instead(spec, ranks)}"
        )
        raise refused("parallelism.tensor", spec.tensor, rule)
    if spec.data not in (None, data):
        rule = (
            f"must be ranks ÷ (tensor × pipeline) = {ranks} ÷ {model} = {data}: use {data}, or leave it empty"
        )
        raise refused("parallelism.data", spec.data, rule)
    shard = spec.shard or (data if spec.zero_stage else 1)
    if data % shard:
        rule = f"must divide the data degree {data}: the nearest is {nearest(divisors(data), shard)}"
        raise refused("parallelism.shard", spec.shard, rule)
    return Degrees(spec.pipeline, data // shard, shard, spec.tensor)


def nearest(choices: list[int], wanted: int) -> int:
    """The choice next to ``wanted``, the smaller of two that are as near."""
    return min(choices, key=lambda choice: (abs(choice - wanted), choice))


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _instead(spec: ParallelismSpec, ranks: int) -> str:
    """The nearest degrees that fit: of tensor where the pipeline stays, else of both."""
    if ranks % spec.pipeline == 0:
        tensor = nearest(divisors(ranks // spec.pipeline), spec.tensor)
        return f"the nearest is tensor {tensor}, or {spec.tensor * spec.pipeline} ranks or a multiple of it"
    pipeline = nearest(divisors(ranks), spec.pipeline)
    tensor = nearest(divisors(ranks // pipeline), spec.tensor)
    return f"the nearest is pipeline {pipeline} with tensor {tensor}"
