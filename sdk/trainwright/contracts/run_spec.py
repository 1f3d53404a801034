"""RunSpec: what somebody asked for. It is stored, shown, compared and forked, and never carries a path or code.

Each section is taken by the one component that it configures; no component takes the whole spec. Defaults stand
here and nowhere else. The sentence under a field becomes the help of the form, the CLI, the API and the docs.

What is not built yet is refused here, at the field, with the reason.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwright.contracts.base import Strict, refused

SCHEMA_VERSION = 1
BYTES_VOCABULARY = 257
"""256 byte values and the end-of-text token."""


def _plain(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._-]*", name):
        raise ValueError("use letters, digits, spaces and . _ -, beginning with a letter or a digit")
    return name


Name = Annotated[str, StringConstraints(min_length=1, max_length=80), AfterValidator(_plain)]


class TokenizerKind(StrEnum):
    BPE = "bpe"
    BYTES = "bytes"


class Device(StrEnum):
    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class TokenizerSpec(Strict):
    """How text becomes tokens."""

    kind: TokenizerKind = TokenizerKind.BPE
    """`bpe` trains a byte-level BPE on the data; `bytes` uses the 256 byte values."""

    vocabulary: int | None = Field(default=None, ge=BYTES_VOCABULARY, le=1_048_576)
    """Number of token ids, the end-of-text token included: 4,096 for `bpe` and 257 for `bytes` when left empty."""

    @property
    def size(self) -> int:
        """The vocabulary in force, in tokens."""
        if self.vocabulary is not None:
            return self.vocabulary
        return 4_096 if self.kind is TokenizerKind.BPE else BYTES_VOCABULARY


class DataSpec(Strict):
    """Which data, and how it is prepared."""

    dataset: str = Field(min_length=1, max_length=80)
    """Id of the dataset, `ds_…`."""

    version: int | None = Field(default=None, ge=1)
    """Version of the dataset; the newest at submission when left empty."""

    tokenizer: TokenizerSpec = TokenizerSpec()
    """The tokenizer made for this data."""

    validation_fraction: float = Field(default=0.01, ge=0.0, le=0.5)
    """Share of the documents kept for validation, chosen by a hash of each document."""


class ModelSpec(Strict):
    """A decoder of the Llama family: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

    layers: int = Field(default=6, ge=1, le=1_000)
    """Number of transformer blocks."""

    width: int = Field(default=192, ge=8, le=65_536)
    """Size of the residual stream, in features."""

    heads: int = Field(default=6, ge=1, le=1_024)
    """Number of query heads in each attention layer."""

    kv_heads: int | None = Field(default=None, ge=1, le=1_024)
    """Number of key and value heads, shared by groups of query heads; as many as query heads when left empty."""

    head_size: int | None = Field(default=None, ge=2, le=1_024)
    """Features of one head; width ÷ heads when left empty."""

    feed_forward: int | None = Field(default=None, ge=8, le=262_144)
    """Hidden size of the SwiGLU block; 8/3 · width, rounded up to a multiple of 32, when left empty."""

    rope_theta: float = Field(default=10_000.0, gt=1.0)
    """Base of the rotary position frequencies."""

    norm_epsilon: float = Field(default=1e-5, gt=0.0, le=1e-2)
    """Small number that RMSNorm adds to the mean square."""

    tied_embeddings: bool = True
    """Use the token embedding as the output projection too."""

    initializer_std: float = Field(default=0.02, gt=0.0, le=1.0)
    """Standard deviation of the initial weights; projections into the residual stream get it ÷ √(2 · layers)."""

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if self.width % self.heads:
            # With a head_size of its own the network would be sound, but transformers refuses its export.
            raise refused("width", self.width, f"is not a multiple of heads {self.heads}: change one of them")
        if self.heads % self.key_value_heads:
            rule = "must divide heads {}, so that each key head serves the same number of query heads"
            raise refused("kv_heads", self.key_value_heads, rule.format(self.heads))
        if self.features_per_head % 2:
            raise refused(
                "head_size", self.features_per_head, "must be even: rotary positions turn pairs of features"
            )
        return self

    @property
    def key_value_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def features_per_head(self) -> int:
        return self.head_size or self.width // self.heads

    @property
    def hidden(self) -> int:
        """Hidden size of the feed-forward block, in features."""
        return self.feed_forward or -(-8 * self.width // (3 * 32)) * 32


class BatchSpec(Strict):
    """How much text one optimizer step sees."""

    sequence_tokens: int = Field(default=256, ge=8, le=1_048_576)
    """Tokens in one sequence."""

    micro_sequences: int = Field(default=8, ge=1, le=65_536)
    """Sequences one rank processes in one forward pass."""

    global_sequences: int = Field(default=64, ge=1, le=1_048_576)
    """Sequences in one optimizer step, over all ranks and accumulation rounds."""


class OptimizerSpec(Strict):
    """AdamW with decoupled weight decay."""

    kind: Literal["adamw"] = "adamw"
    """The update rule."""

    learning_rate: float = Field(default=1e-3, gt=0.0, le=10.0)
    """Learning rate at the peak of the schedule."""

    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Decay of the first moment."""

    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    """Decay of the second moment."""

    epsilon: float = Field(default=1e-8, gt=0.0, le=1.0)
    """Small number added to the root of the second moment."""

    weight_decay: float = Field(default=0.1, ge=0.0, le=10.0)
    """Decoupled weight decay of matrices; norms and other vectors have none."""

    clip_norm: float | None = Field(default=1.0, gt=0.0)
    """Gradients are scaled down to this global L2 norm; no clipping when empty."""


class ScheduleSpec(Strict):
    """How long training lasts, and the learning rate along the way."""

    kind: Literal["cosine"] = "cosine"
    """Shape of the learning rate after the warm-up."""

    steps: int = Field(default=1_000, ge=1, le=100_000_000)
    """Optimizer steps in the whole run."""

    warmup_steps: int = Field(default=50, ge=0)
    """Steps over which the learning rate rises linearly from 0."""

    final_fraction: float = Field(default=0.1, ge=0.0, le=1.0)
    """Learning rate at the last step, as a fraction of the peak."""

    @model_validator(mode="after")
    def _warmup_ends(self) -> Self:
        if self.warmup_steps >= self.steps:
            raise refused("warmup_steps", self.warmup_steps, f"must be less than steps {self.steps}")
        return self


class ValidationSpec(Strict):
    """How often the loss on held-out documents is measured."""

    every_steps: int = Field(default=100, ge=1)
    """Steps between two measurements; one more is made at the last step."""

    sequences: int = Field(default=64, ge=1, le=1_048_576)
    """Sequences in one measurement, always the same ones; fewer when the split has fewer."""


class PrecisionKind(StrEnum):
    FP32 = "fp32"
    BF16 = "bf16"


class PrecisionSpec(Strict):
    """The number formats of the training arithmetic."""

    kind: PrecisionKind = PrecisionKind.BF16
    """`bf16` computes products in bfloat16 under autocast with float32 weights; `fp32` does everything in float32."""

    @model_validator(mode="before")
    @classmethod
    def _fp8_is_not_built_yet(cls, data: object) -> object:
        if isinstance(data, dict) and data.get("kind") == "fp8":
            raise refused("kind", "fp8", "does not exist in this version yet: choose bf16 or fp32")
        return data


class ParallelismSpec(Strict):
    """How the work is cut over the ranks. Today: data parallelism over all of them."""

    data: int | None = Field(default=None, ge=1)
    """Degree of data parallelism; all ranks of the run when left empty."""

    tensor: int = Field(default=1, ge=1)
    """Degree of tensor parallelism."""

    pipeline: int = Field(default=1, ge=1)
    """Degree of pipeline parallelism."""

    context: int = Field(default=1, ge=1)
    """Degree of context parallelism."""

    @model_validator(mode="after")
    def _only_data_exists(self) -> Self:
        for axis in ("tensor", "pipeline", "context"):
            degree = getattr(self, axis)
            if degree != 1:
                raise refused(axis, degree, "does not exist in this version yet: use 1")
        return self


class CheckpointSpec(Strict):
    """How often the state is saved. The last step is always saved."""

    every_steps: int = Field(default=200, ge=1)
    """Steps between two checkpoints."""

    keep: int = Field(default=2, ge=2, le=1_000)
    """Newest checkpoints to keep; older ones are deleted once a newer one is committed."""


class ResourcesSpec(Strict):
    """What the run occupies. One rank runs on each slot."""

    device: Device = Device.AUTO
    """`cuda`, `cpu`, or `auto`: cuda when a joined node has it."""

    nodes: int = Field(default=1, ge=1)
    """Number of nodes."""

    slots_per_node: int = Field(default=1, ge=1, le=1_024)
    """GPUs, or shares of a CPU node's cores, on each node."""

    max_attempts: int | None = Field(default=None, ge=1)
    """End the run as failed after this many attempts, whatever ended them; no such limit when empty."""

    @model_validator(mode="after")
    def _one_node(self) -> Self:
        if self.nodes != 1:
            raise refused("nodes", self.nodes, "nodes do not exist in this version yet: use 1")
        return self

    @property
    def ranks(self) -> int:
        return self.nodes * self.slots_per_node


class RunSpec(Strict):
    """Everything that was asked of one run."""

    schema_version: Literal[1] = 1
    """Version of this format."""

    name: Name
    """What people call the run: letters, digits, spaces and . _ -."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the weights and of the order of the data."""

    data: DataSpec
    """What the model is trained on."""

    model: ModelSpec = ModelSpec()
    """Shape of the network."""

    batch: BatchSpec = BatchSpec()
    """How much text one step sees."""

    optimizer: OptimizerSpec = OptimizerSpec()
    """The update rule."""

    schedule: ScheduleSpec = ScheduleSpec()
    """Length of the run and learning rate."""

    validation: ValidationSpec = ValidationSpec()
    """Loss on held-out documents."""

    precision: PrecisionSpec = PrecisionSpec()
    """Number formats."""

    parallelism: ParallelismSpec = ParallelismSpec()
    """How the work is cut over the ranks."""

    checkpoint: CheckpointSpec = CheckpointSpec()
    """How often the state is saved."""

    resources: ResourcesSpec = ResourcesSpec()
    """What the run occupies."""

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        ranks = self.resources.ranks
        if self.parallelism.data not in (None, ranks):
            rule = f"must equal resources.nodes × resources.slots_per_node = {ranks}: leave it empty"
            raise refused("parallelism.data", self.parallelism.data, rule)
        round_sequences = self.batch.micro_sequences * ranks
        if self.batch.global_sequences % round_sequences:
            rule = f"must be a multiple of batch.micro_sequences × ranks = {round_sequences}"
            raise refused("batch.global_sequences", self.batch.global_sequences, rule)
        return self

    @property
    def accumulation_rounds(self) -> int:
        """Forward passes of one rank in one optimizer step."""
        return self.batch.global_sequences // (self.batch.micro_sequences * self.resources.ranks)

    @property
    def tokens_per_step(self) -> int:
        return self.batch.global_sequences * self.batch.sequence_tokens
