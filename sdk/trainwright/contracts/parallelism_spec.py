"""The resources of a run, and how its work is distributed over the ranks.

    ranks = pipeline × data × tensor        data = replicas × shard

Ranks are numbered with the tensor axis varying fastest, then shards, then replicas, then pipeline stages. So the ranks of a
tensor group, which communicate most, are neighbours on one node, and pipeline stages, which communicate least, may be far
apart. ``layout_rules`` says which choices work together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from trainwright.contracts.base import CAPABILITY_PATTERN, Strict, field_error


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
        """Whether weight gradients are computed separately from input gradients, and later."""
        return self in (PipelineSchedule.INTERLEAVED_ZERO_BUBBLE, PipelineSchedule.ZBV)


class StagesKind(StrEnum):
    EVEN = "even"
    AUTO = "auto"


class OffloadKind(StrEnum):
    NONE = "none"
    OPTIMIZER = "optimizer"
    PARAMETERS = "parameters"


class ParallelismSpec(Strict):
    """How the work is distributed: pipeline × data × tensor degree is the number of ranks."""

    data: int | None = Field(default=None, ge=1, le=65_536)
    """Degree of data parallelism, which splits the batch. Empty: ranks ÷ (tensor × pipeline)."""

    shard: int | None = Field(default=None, ge=1, le=65_536)
    """Number of data ranks over which `zero_stage` shards one copy. Empty: all data ranks."""

    zero_stage: Literal[0, 1, 2, 3] = 0
    """What is sharded over data ranks (ZeRO). 0: nothing. 1: the optimizer state. 2: also gradients. 3: also weights."""

    tensor: int = Field(default=1, ge=1, le=1_024)
    """Degree of tensor parallelism, which splits each matrix. Between matmuls the same ranks split the sequence."""

    tensor_across_nodes: bool = False
    """Let a tensor group span nodes. Its collectives are then as slow as the network."""

    tensor_chunks: int = Field(default=1, ge=1, le=64)
    """Chunks into which a tensor rank splits its tokens, to send one while it multiplies another. 1: no overlap."""

    pipeline: int = Field(default=1, ge=1, le=1_024)
    """Degree of pipeline parallelism, which splits the layers into stages."""

    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    """Pipeline schedule: `1f1b`, `interleaved`, `interleaved_zero_bubble` or `zbv`."""

    stages_per_rank: int | None = Field(default=None, ge=1, le=64)
    """Stages on each pipeline rank: 1 for `1f1b`, 2 for `zbv`. Empty: 2 for the interleaved schedules."""

    stages: StagesKind | tuple[int, ...] = StagesKind.EVEN
    """Layers of each stage: `even`, `auto` (by the measured speed and memory of the ranks), or a list such as 2,3,3,2."""

    context: int = Field(default=1, ge=1)
    """Degree of context parallelism."""

    engine: EngineKind = EngineKind.NATIVE
    """Training engine: `native`, or `deepspeed` (data parallelism with ZeRO and offload to host memory)."""

    offload: OffloadKind = OffloadKind.NONE
    """What `deepspeed` keeps in host memory: nothing (`none`), `optimizer` state, or `parameters` as well."""

    @model_validator(mode="after")
    def _choices_go_together(self) -> Self:
        if self.context != 1:
            raise field_error("context", self.context, "is not supported yet: use 1")
        self._check_stages_per_rank()
        if self.tensor_chunks > 1 and self.tensor == 1:
            rule = "splits what tensor ranks send each other, but tensor is 1: raise tensor, or use 1"
            raise field_error("tensor_chunks", self.tensor_chunks, rule)
        if isinstance(self.stages, tuple):
            self._check_stages(self.stages)
        if self.shard is not None and not self.zero_stage:
            raise field_error(
                "shard", self.shard, "has no effect at zero_stage 0: leave it empty, or raise zero_stage"
            )
        return self

    @property
    def local_stages(self) -> int:
        """Stages on each pipeline rank."""
        if self.pipeline == 1 or self.schedule is PipelineSchedule.ONE_F_ONE_B:
            return 1
        return self.stages_per_rank or 2

    @property
    def stage_count(self) -> int:
        """Stages of the pipeline."""
        return self.pipeline * self.local_stages

    def _check_stages_per_rank(self) -> None:
        wanted = {PipelineSchedule.ONE_F_ONE_B: 1, PipelineSchedule.ZBV: 2}.get(self.schedule)
        if self.stages_per_rank is not None and wanted not in (None, self.stages_per_rank):
            rule = f"does not work with schedule {self.schedule}, which has {wanted}: leave it empty"
            raise field_error("stages_per_rank", self.stages_per_rank, rule)
        if self.pipeline == 1 and self.schedule is not PipelineSchedule.ONE_F_ONE_B:
            rule = "orders several stages, but pipeline is 1: raise pipeline, or use 1f1b"
            raise field_error("schedule", self.schedule.value, rule)

    def _check_stages(self, stages: tuple[int, ...]) -> None:
        shown = ",".join(map(str, stages))
        if len(stages) != self.stage_count:
            rule = f"has {len(stages)} stages, but pipeline × stages_per_rank = {self.stage_count}: give that many numbers"
            raise field_error("stages", shown, rule)
        if min(stages) < 1:
            raise field_error("stages", shown, "has a stage without layers: give each at least 1")


class ResourcesSpec(Strict):
    """The nodes and slots that the run occupies. One rank runs on each slot."""

    device: Device = Device.AUTO
    """`cuda`, `cpu`, or `auto`: cuda if a joined node has it."""

    nodes: int = Field(default=1, ge=1, le=4_096)
    """Number of nodes. The run starts when all of them have free slots, and ends on all of them together."""

    min_nodes: int | None = Field(default=None, ge=1, le=4_096)
    """Minimum number of nodes of an elastic run. If too few nodes are free after an attempt, the next one continues with fewer data
    ranks and the same global batch. Empty: always `nodes`."""

    slots_per_node: int = Field(default=1, ge=1, le=1_024)
    """GPUs, or shares of a CPU node's cores, on each node."""

    gpu_model: str | None = Field(default=None, min_length=2, max_length=64)
    """Part of the name of the GPUs, such as `H100`; upper and lower case are the same. Empty: any."""

    gpu_memory_gib: float | None = Field(default=None, gt=0, le=10_000)
    """Minimum memory of each GPU, in GiB, as its driver reports it: a card of 80 GB has 79. Empty: as much as the run needs."""

    gpu_capability: str | None = Field(default=None, pattern=CAPABILITY_PATTERN)
    """Minimum compute capability of each GPU, such as `8.0`. Empty: as the precision needs."""

    max_attempts: int | None = Field(default=None, ge=1)
    """Fail the run after this many attempts, not counting those that ended with a pause. Empty: no limit."""

    max_hours: float | None = Field(default=None, gt=0, le=87_600)
    """Maximum run time: after this many hours on nodes since it was submitted or resumed, the run saves and is paused. An export
    is not interrupted. Empty: no maximum."""

    @property
    def ranks(self) -> int:
        return self.nodes * self.slots_per_node

    @property
    def gpu_fields(self) -> dict[str, str | float]:
        """What the run asks of its GPUs, by field."""
        asked = {name: getattr(self, name) for name in ("gpu_model", "gpu_memory_gib", "gpu_capability")}
        return {name: value for name, value in asked.items() if value is not None}

    @model_validator(mode="after")
    def _least_is_not_more(self) -> Self:
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            rule = f"is more than nodes, {self.nodes}: use {self.nodes} at most, or leave it empty"
            raise field_error("min_nodes", self.min_nodes, rule)
        return self

    @model_validator(mode="after")
    def _only_gpus_have_gpu_fields(self) -> Self:
        if self.device is Device.CPU:
            for name, value in self.gpu_fields.items():
                raise field_error(
                    name, value, "is for GPUs, but device is cpu: leave it out, or use device cuda"
                )
        return self


@dataclass(frozen=True)
class Degrees:
    """Sizes of the mesh axes. Their product is the number of ranks."""

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

    def coordinates(self, rank: int) -> Coordinates:
        """Coordinates of global rank ``rank`` in the mesh."""
        rank, tensor = divmod(rank, self.tensor)
        rank, shard = divmod(rank, self.shard)
        pipeline, replica = divmod(rank, self.replicas)
        return Coordinates(pipeline, replica, shard, tensor)

    def rank_at(self, at: Coordinates) -> int:
        """The global rank at these coordinates."""
        outer = at.pipeline * self.replicas + at.replica
        return (outer * self.shard + at.shard) * self.tensor + at.tensor


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of one rank in the mesh."""

    pipeline: int
    replica: int
    shard: int
    tensor: int


def resolve_degrees(spec: ParallelismSpec, ranks: int) -> Degrees:
    """Degrees of a run on ``ranks`` ranks.

    Raises:
        PydanticCustomError: naming the field of ``parallelism`` that does not fit, and the nearest value that does.
    """
    model = spec.tensor * spec.pipeline
    data, rest = divmod(ranks, model)
    if rest or not data:
        rule = (
            f"× pipeline {spec.pipeline} = {model} does not divide the {ranks} ranks "
            f"(resources.nodes × resources.slots_per_node): {_instead(spec, ranks)}"
        )
        raise field_error("parallelism.tensor", spec.tensor, rule)
    if spec.data not in (None, data):
        rule = (
            f"must be ranks ÷ (tensor × pipeline) = {ranks} ÷ {model} = {data}: use {data}, or leave it empty"
        )
        raise field_error("parallelism.data", spec.data, rule)
    shard = spec.shard or (data if spec.zero_stage else 1)
    if data % shard:
        rule = f"must divide the data degree {data}: the nearest is {nearest(divisors(data), shard)}"
        raise field_error("parallelism.shard", spec.shard, rule)
    return Degrees(spec.pipeline, data // shard, shard, spec.tensor)


def nearest(choices: list[int], wanted: int) -> int:
    """The choice nearest to ``wanted``; the smaller one of two equally near."""
    return min(choices, key=lambda choice: (abs(choice - wanted), choice))


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _instead(spec: ParallelismSpec, ranks: int) -> str:
    """The nearest degrees that fit: of tensor if pipeline can stay, otherwise of both."""
    if ranks % spec.pipeline == 0:
        tensor = nearest(divisors(ranks // spec.pipeline), spec.tensor)
        return f"the nearest is tensor {tensor}, or {spec.tensor * spec.pipeline} ranks or a multiple of it"
    pipeline = nearest(divisors(ranks), spec.pipeline)
    tensor = nearest(divisors(ranks // pipeline), spec.tensor)
    return f"the nearest is pipeline {pipeline} with tensor {tensor}"
