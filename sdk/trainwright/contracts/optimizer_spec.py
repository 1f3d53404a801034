"""The optimizer of a run: its settings, and what each kind declares for trainer and planner, once.

A new optimizer touches three files:

    here                       its name in ``OptimizerKind``, its entry in ``UPDATE_RULES``, and its own settings, if any
    trainwright_trainer.optim  its step, in a separate file, and a line of ``registry``

The spec's checks, memory, checkpoints, ZeRO's shards and the combinations that are refused follow from what it declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from pydantic import Field, model_validator

from trainwright.contracts.base import Strict, field_error
from trainwright.contracts.precision_spec import FP8Level, FP8Spec, MomentsKind, StateFormat

OptimizerKind = Literal["adamw", "lamb", "muon"]


@dataclass(frozen=True)
class UpdateRule:
    """The properties of an optimizer for trainer and planner."""

    states: tuple[str, ...]
    """The states of each weight, under torch's names. Each state has the weight's shape."""

    block_matrix_states: tuple[str, ...] | None = None
    """The states of the matrices of blocks, if they differ."""

    settings: Mapping[str, float] = field(default_factory=dict)
    """Fields of ``OptimizerSpec`` that only some optimizers have, and what an empty one means."""

    fp8_states: Mapping[MomentsKind, tuple[StateFormat, ...]] | None = None
    """How FP8 runs store ``states`` at levels O2 and O3 (``fp8.state.optimizer``). None: it has no form for FP8 runs."""

    on_deepspeed: bool = False
    """Whether DeepSpeed's engine can use it: torch has it as a class (``optim.registry.TORCH_OPTIMIZERS``), which the engine shards."""


UPDATE_RULES: dict[str, UpdateRule] = {
    "adamw": UpdateRule(
        ("exp_avg", "exp_avg_sq"),
        fp8_states={
            MomentsKind.PAPER: (StateFormat.E4M3, StateFormat.FLOAT16),
            MomentsKind.BLOCK: (StateFormat.E4M3_BLOCK, StateFormat.E4M3_BLOCK),
        },
        on_deepspeed=True,
    ),
    "lamb": UpdateRule(("exp_avg", "exp_avg_sq")),
    "muon": UpdateRule(
        ("exp_avg", "exp_avg_sq"), block_matrix_states=("momentum_buffer",), settings={"momentum": 0.95}
    ),
}
"""By the name in ``OptimizerSpec.kind``."""


class LearningRateFactors(Strict):
    """What the learning rate is multiplied by for each kind of weight. Weight decay, which is in proportion to the learning rate,
    is multiplied too."""

    embedding: float = Field(default=1.0, gt=0.0, le=1_000.0)
    """Embeddings of tokens and learned positions, and the head if it is tied to the embedding."""

    head: float = Field(default=1.0, gt=0.0, le=1_000.0)
    """The head that computes logits, if it is not tied to the embedding (`model.tied_embeddings`)."""

    block_matrices: float = Field(default=1.0, gt=0.0, le=1_000.0)
    """Projections of attention and feed-forward layers: all matrices but embeddings and head."""

    vectors: float = Field(default=1.0, gt=0.0, le=1_000.0)
    """Norms and biases."""

    @staticmethod
    def kind_of(weight: str, dims: int) -> str:
        """The field that a weight belongs to, by its canonical name and number of dims."""
        if dims < 2:
            return "vectors"
        if is_block_matrix(weight, dims):
            return "block_matrices"
        return "head" if weight.startswith("head.") else "embedding"


class OptimizerSpec(Strict):
    """The update rule and its settings."""

    kind: OptimizerKind = "adamw"
    """The update rule: `adamw`; `lamb` moves each matrix by its norm, for large batches; `muon` orthogonalizes the updates of matrices in blocks, and is `adamw` for the rest."""

    learning_rate: float = Field(default=1e-3, gt=0.0, le=10.0)
    """Learning rate at the peak of the schedule."""

    learning_rate_factors: LearningRateFactors | None = None
    """Other learning rates for some kinds of weights, as multiples of `learning_rate`. Empty: one rate for all."""

    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Decay of the first moment."""

    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    """Decay of the second moment."""

    epsilon: float = Field(default=1e-8, gt=0.0, le=1.0)
    """Small number added to the square root of the second moment."""

    momentum: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Decay of the momentum of `muon`. Empty: 0.95."""

    weight_decay: float = Field(default=0.1, ge=0.0, le=10.0)
    """Decoupled weight decay of the weights in `weight_decay_of`."""

    weight_decay_of: Literal["matrices", "block_matrices", "all"] = "matrices"
    """Weights that decay: `matrices`, but neither norms nor biases; `block_matrices`, which leaves out embeddings and head too;
    or `all`."""

    clip_norm: float | None = Field(default=1.0, gt=0.0)
    """Gradients are clipped to this global L2 norm. Null (off): no clipping."""

    z_loss: float = Field(default=0.0, ge=0.0, le=1.0)
    """Coefficient of the squared logarithm of the softmax's denominator, which is added to what training minimizes, so that
    logits stay small (PaLM: 1e-4). Reported losses do not contain it. 0: off."""

    @model_validator(mode="after")
    def _settings_are_used(self) -> Self:
        for name in _OWN_SETTINGS:
            value = getattr(self, name)
            if value is not None and name not in self._rule.settings:
                users = " and ".join(kind for kind, rule in UPDATE_RULES.items() if name in rule.settings)
                raise field_error(name, value, f"applies to {users} only: leave it empty for {self.kind}")
        return self

    @property
    def _rule(self) -> UpdateRule:
        return UPDATE_RULES[self.kind]

    @property
    def states(self) -> tuple[str, ...]:
        """The states of each weight, or at least of each that is not a matrix of a block."""
        return self._rule.states

    def states_of(self, weight: str, dims: int) -> tuple[str, ...]:
        """The states of a weight, by its canonical name and number of dims."""
        rule = self._rule
        if rule.block_matrix_states is not None and is_block_matrix(weight, dims):
            return rule.block_matrix_states
        return rule.states

    def decays(self, weight: str, dims: int) -> bool:
        """Whether a weight decays, by its canonical name and number of dims."""
        if self.weight_decay_of == "block_matrices":
            return is_block_matrix(weight, dims)
        return self.weight_decay_of == "all" or dims >= 2

    def learning_rate_factor(self, weight: str, dims: int) -> float:
        """What the learning rate of a weight is multiplied by; arguments as for ``decays``."""
        factors = self.learning_rate_factors
        return 1.0 if factors is None else float(getattr(factors, factors.kind_of(weight, dims)))

    def formats_in_fp8(self, fp8: FP8Spec) -> tuple[StateFormat, ...]:
        """How ``states`` are stored in an FP8 run."""
        rule = self._rule
        assert rule.fp8_states is not None, f"{self.kind} is refused in FP8 runs"
        if fp8.level is FP8Level.O1:
            return (StateFormat.FLOAT32,) * len(rule.states)
        return rule.fp8_states[fp8.moments]

    def resolved(self, setting: str) -> float:
        """A setting that only some optimizers have, also if it is empty."""
        given: float | None = getattr(self, setting)
        return self._rule.settings[setting] if given is None else given


_OWN_SETTINGS = tuple(dict.fromkeys(name for rule in UPDATE_RULES.values() for name in rule.settings))
"""Fields that some optimizers do not have."""


def is_block_matrix(weight: str, dims: int) -> bool:
    """Whether a weight, by its canonical name, is a matrix within a block, and so neither embedding nor head."""
    return dims == 2 and weight.startswith("layers.")
