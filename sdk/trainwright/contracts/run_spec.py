"""RunSpec: what somebody asked for. It is stored, shown, compared and forked, and never carries a path or code.

Each section is taken by the one component that it configures; no component takes the whole spec. Defaults stand
here and nowhere else. The sentence under a field becomes the help of the form, the CLI, the API and the docs.

What is not built yet is refused here, at the field, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    UPLOADED = "uploaded"
    DATASET = "dataset"


class Device(StrEnum):
    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class TokenizerSpec(Strict):
    """How text becomes tokens."""

    kind: TokenizerKind = TokenizerKind.BPE
    """`bpe` trains one on the data; `bytes` uses byte values; `uploaded` and `dataset` take the one of `source`."""

    source: str | None = Field(default=None, min_length=1, max_length=80)
    """Id of the uploaded tokenizer, `tok_…`, or of the dataset whose BPE is taken, `ds_…`."""

    vocabulary: int | None = Field(default=None, ge=BYTES_VOCABULARY, le=1_048_576)
    """Number of token ids. Left empty: 4,096 for `bpe`, 257 for `bytes`, else what the tokenizer of `source` has."""

    @property
    def size(self) -> int:
        """The vocabulary in force, in tokens. That of `uploaded` and `dataset` is filled in at submission."""
        if self.vocabulary is not None:
            return self.vocabulary
        return BYTES_VOCABULARY if self.kind is TokenizerKind.BYTES else 4_096

    @property
    def has_source(self) -> bool:
        """The tokenizer is not made from the data."""
        return self.kind in (TokenizerKind.UPLOADED, TokenizerKind.DATASET)

    @model_validator(mode="after")
    def _source_fits(self) -> Self:
        if self.has_source and self.source is None:
            rule = (
                f"is empty: kind {self.kind.value} needs the id of the tokenizer or dataset to take it from"
            )
            raise refused("source", "source", rule)
        if not self.has_source and self.source is not None:
            rule = f"is given, but kind {self.kind.value} takes no source: leave it empty, or choose another kind"
            raise refused("source", self.source, rule)
        return self


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
    """Gradients are scaled down to this global L2 norm; no clipping when null (off)."""


class ScheduleKind(StrEnum):
    COSINE = "cosine"
    LINEAR = "linear"
    WSD = "wsd"


class ScheduleSpec(Strict):
    """How long training lasts, and the learning rate along the way."""

    kind: ScheduleKind = ScheduleKind.COSINE
    """After the warm-up `cosine` and `linear` fall to the last step; `wsd` stays at the peak and falls at the end."""

    steps: int = Field(default=1_000, ge=1, le=100_000_000)
    """Optimizer steps in the whole run."""

    warmup_steps: int = Field(default=50, ge=0)
    """Steps over which the learning rate rises linearly from 0."""

    final_fraction: float = Field(default=0.1, ge=0.0, le=1.0)
    """Learning rate at the last step, as a fraction of the peak."""

    decay_steps: int | None = Field(default=None, ge=1)
    """Steps over which `wsd` falls linearly at the end; a fifth of all steps when left empty."""

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        if self.warmup_steps >= self.steps:
            raise refused("warmup_steps", self.warmup_steps, f"must be less than steps {self.steps}")
        if self.decay_steps is not None and self.kind is not ScheduleKind.WSD:
            raise refused("decay_steps", self.decay_steps, f"belongs to wsd: leave it empty for {self.kind}")
        if self.decay_steps is not None and self.decay_steps > self.steps - self.warmup_steps:
            rule = f"must be at most steps - warmup_steps = {self.steps - self.warmup_steps}"
            raise refused("decay_steps", self.decay_steps, rule)
        return self

    @property
    def final_steps(self) -> int:
        """Steps of the fall at the end of `wsd`."""
        return self.decay_steps or min(-(-self.steps // 5), self.steps - self.warmup_steps)


class ValidationSpec(Strict):
    """How often the loss on held-out documents is measured."""

    every_steps: int = Field(default=100, ge=1)
    """Steps between two measurements; one more is made at the last step."""

    sequences: int = Field(default=64, ge=1, le=1_048_576)
    """Sequences in one measurement, always the same ones; fewer when the split has fewer."""


class PrecisionKind(StrEnum):
    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"


class FP8Level(StrEnum):
    O1 = "O1"
    O2 = "O2"
    O3 = "O3"


class ScalingKind(StrEnum):
    TENSOR = "tensor"
    ROW = "row"
    BLOCK = "block"


class AmaxKind(StrEnum):
    PRESENT = "present"
    DELAYED = "delayed"


class MomentsKind(StrEnum):
    PAPER = "paper"
    BLOCK = "block"


class AccumulationKind(StrEnum):
    BF16 = "bf16"
    FP32 = "fp32"


class FP8Spec(Strict):
    """The FP8-LM recipe: what is kept and sent in 8 bits, and how it is scaled."""

    level: FP8Level = FP8Level.O2
    """`O1`: gradients in FP8; `O2`: the optimizer too; `O3`: cut over the ranks, and products read E4M3 weights."""

    scaling: ScalingKind = ScalingKind.TENSOR
    """What shares one scale in the products: the whole `tensor`, a `row`, or a `block` of 128 (weights: 128 × 128)."""

    amax: AmaxKind = AmaxKind.PRESENT
    """Inputs and output gradients are scaled by their `present` maximum, or by that of the last 16 steps (`delayed`)."""

    high_first_layers: int = Field(default=0, ge=0)
    """Blocks at the start whose products stay in bfloat16, as the head's always do; at O3 their weights are E4M3."""

    high_last_layers: int = Field(default=0, ge=0)
    """Blocks at the end whose products stay in bfloat16; at O3 the weights in them are E4M3 copies all the same."""

    accumulation: AccumulationKind = AccumulationKind.BF16
    """Format in which the gradients of several micro batches are added up, before they are stored in E4M3 once."""

    moments: MomentsKind = MomentsKind.PAPER
    """Adam's moments at O2 and O3: `paper` has E4M3 and FP16, one scale a tensor; `block` has both in E4M3, by 128."""

    release_gradients: bool = False
    """Update each weight in the backward pass as soon as its gradient is there, and keep no gradients at all."""

    skip_limit: int = Field(default=3, ge=0, le=1_000)
    """Steps in a row that are skipped because a gradient is not finite, before the run ends as diverged."""

    observe_every_steps: int = Field(default=10, ge=1)
    """Steps between two measurements of scales, clamped tensors, flushed values, and updates lost to rounding."""

    @model_validator(mode="after")
    def _choices_go_together(self) -> Self:
        if self.scaling is not ScalingKind.TENSOR and self.amax is AmaxKind.DELAYED:
            rule = f"needs a history, which whole tensors have only: use present with scaling {self.scaling}"
            raise refused("amax", self.amax, rule)
        if self.scaling is not ScalingKind.TENSOR and self.level is FP8Level.O3:
            rule = "does not go with O3, which holds weights with one scale a tensor: use tensor, or level O2"
            raise refused("scaling", self.scaling, rule)
        if self.level is FP8Level.O1 and self.moments is MomentsKind.BLOCK:
            raise refused(
                "moments",
                self.moments,
                "does not go with O1, which keeps float32 moments: use level O2 or O3",
            )
        if self.release_gradients and self.level is FP8Level.O1:
            rule = "does not go with O1, which is about stored gradients: use level O2, or false"
            raise refused("release_gradients", "true", rule)
        return self


class CompileKind(StrEnum):
    AUTO = "auto"
    ON = "on"
    OFF = "off"


class PrecisionSpec(Strict):
    """The number formats of the training arithmetic."""

    kind: PrecisionKind = PrecisionKind.BF16
    """`bf16` computes products in bfloat16 with float32 weights, `fp32` all in float32, `fp8` by the recipe below."""

    fp8: FP8Spec | None = None
    """The FP8 recipe; only for kind `fp8`, where leaving it empty takes its defaults."""

    compile: CompileKind = CompileKind.AUTO
    """Compile the model with torch.compile; `auto` does so on GPUs, and on CPUs in `bf16` runs over 10¹⁴ FLOPs a rank."""

    @model_validator(mode="before")
    @classmethod
    def _default_recipe(cls, given: object) -> object:
        if isinstance(given, dict) and given.get("kind") == PrecisionKind.FP8 and given.get("fp8") is None:
            return given | {"fp8": {}}
        return given

    @model_validator(mode="after")
    def _recipe_fits_kind(self) -> Self:
        if self.fp8 is not None and self.kind is not PrecisionKind.FP8:
            rule = f"is for kind fp8, and the kind here is {self.kind}: set precision.kind to fp8 too, or leave it out"
            raise refused("fp8", "a recipe", rule)
        return self


class RecomputeKind(StrEnum):
    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class MemorySpec(Strict):
    """What is computed twice or in pieces so that less memory is needed."""

    recompute: RecomputeKind = RecomputeKind.NONE
    """In the backward pass: `selective` computes all but products and attention again, `full` each block whole."""

    loss_chunk_tokens: int = Field(default=4_096, ge=128, le=1_048_576)
    """Tokens whose logits exist at one time; a micro batch with more of them gets its loss in chunks."""


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

    export_dtype: Literal["fp32", "bf16"] = "fp32"
    """Number format of the exported weights."""


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

    memory: MemorySpec = MemorySpec()
    """Memory against time."""

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
        if self.precision.fp8 is not None:
            self._fp8_fits(self.precision.fp8)
        return self

    def _fp8_fits(self, fp8: FP8Spec) -> None:
        """What the recipe asks of the sections around it."""
        _check_fp8_shapes(self.model, self.batch, fp8.scaling)
        high = fp8.high_first_layers + fp8.high_last_layers
        if high >= self.model.layers:
            rule = f"first and {fp8.high_last_layers} last layers leave none of {self.model.layers} for FP8: lower one"
            raise refused("precision.fp8.high_first_layers", fp8.high_first_layers, rule)
        if fp8.release_gradients:
            hindrances = "; ".join(self._why_no_release(fp8))
            if hindrances:
                rule = f"updates in the backward pass, before all is known: {hindrances}; or use false"
                raise refused("precision.fp8.release_gradients", "true", rule)

    def _why_no_release(self, fp8: FP8Spec) -> Iterator[str]:
        """What hinders that a weight is updated as soon as this rank has its gradient."""
        if fp8.skip_limit:
            yield "set skip_limit to 0, since no step can be skipped"
        if self.optimizer.clip_norm is not None:
            yield "set optimizer.clip_norm to null (off), since clipping needs the norm of all gradients"
        if self.accumulation_rounds > 1:
            yield "make batch.micro_sequences × ranks equal batch.global_sequences, since rounds must be added up"
        if self.resources.ranks > 1:
            yield "use one slot, since all ranks must have found their gradients finite"

    @property
    def accumulation_rounds(self) -> int:
        """Forward passes of one rank in one optimizer step."""
        return self.batch.global_sequences // (self.batch.micro_sequences * self.resources.ranks)

    @property
    def tokens_per_step(self) -> int:
        return self.batch.global_sequences * self.batch.sequence_tokens


def _check_fp8_shapes(model: ModelSpec, batch: BatchSpec, scaling: ScalingKind) -> None:
    """The products' dims: GPUs multiply FP8 matrices in tiles of 16, and blocks of 128 must not be cut."""
    tile = 128 if scaling is ScalingKind.BLOCK else 16
    sizes = {
        "model.width": model.width,
        "model.heads": model.heads * model.features_per_head,
        "model.kv_heads": model.key_value_heads * model.features_per_head,
        "model.feed_forward": model.hidden,
        "batch.micro_sequences": batch.micro_sequences * batch.sequence_tokens,
    }
    what = {
        "model.heads": "heads × head_size",
        "model.kv_heads": "kv_heads × head_size",
        "batch.micro_sequences": "micro_sequences × sequence_tokens",
    }
    for field, size in sizes.items():
        if size % tile:
            nearest = -(-size // tile) * tile
            product = what.get(field, field.partition(".")[2])
            rule = f"is no multiple of {tile}, which FP8 products with scaling {scaling} need of {product}"
            raise refused(field, size, f"{rule}: the next is {nearest}")
