"""The layouts that are compared: every axis on its own, then combinations that cover every interaction.

A cell trains a small model: six layers 64 wide, a batch of 8 sequences of 32 tokens in micro batches of one.
It is compared with one process of the same precision, and, where all sums have the same order, bit for bit
with the cell ``like``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

LEARNING_RATE = 3e-4
"""Small enough for the loss to fall steadily over 20 steps. At 1e-3 the norm jumps between some of them and
earlier rounding errors grow tenfold, so a bound on a single step would say little."""

EPSILON = 1e-2
"""Large compared with AdamW's default: otherwise weights whose gradients are almost zero move by the full
learning rate in whichever direction rounding points."""

TOKENS = 8 * 32

ALONE = "one process"

BASE: dict[str, Any] = {
    "model": {
        "layers": 6,
        "width": 64,
        "heads": 4,
        "kv_heads": 2,
        "feed_forward": 128,
        "tied_embeddings": False,
    },
    "batch": {"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 8},
    # Never reached, so that a norm that differs in its last bit does not affect all gradients. Norms are
    # compared separately.
    "optimizer": {"learning_rate": LEARNING_RATE, "epsilon": EPSILON, "clip_norm": 1e3},
    "schedule": {"steps": 100, "warmup_steps": 1},
}
CLIPPED = {"optimizer": {"clip_norm": 0.5}}
TIED = {"model": {"tied_embeddings": True}}
PARALLEL_BLOCK = {"model": {"block": "parallel"}}

PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {"kind": "fp32"},
    "bf16": {"kind": "bf16", "compile": "off"},
} | {
    level: {"kind": "fp8", "compile": "off", "fp8": {"level": level, "scaling": "tensor"}}
    for level in ("O1", "O2", "O3")
}


@dataclass(frozen=True)
class Cell:
    """A layout and what it trains."""

    ranks: int
    parallelism: dict[str, Any] = field(default_factory=dict)
    precision: str = "fp32"
    sections: dict[str, Any] = field(default_factory=dict)
    """Overrides ``BASE``, also for the one process that the cell is compared with."""

    like: str | None = None
    """Cell that this one must equal bit for bit."""

    not_built: str | None = None
    """Why this layout cannot be trained yet. It is listed but not compared."""

    @property
    def tensor(self) -> int:
        return int(self.parallelism.get("tensor", 1))

    @property
    def spec(self) -> dict[str, Any]:
        """Sections of the run's spec."""
        given = {"precision": PRECISIONS[self.precision]} | self.sections
        laid = {name: BASE.get(name, {}) | given.get(name, {}) for name in BASE | given}
        return laid | {"parallelism": self.parallelism}


def _pipeline(degree: int, schedule: str = "1f1b", **more: Any) -> dict[str, Any]:
    return {"pipeline": degree, "schedule": schedule} | more


SINGLE_AXES: dict[str, Cell] = {
    "data 2": Cell(2),
    "data 4": Cell(4),
    "data 8": Cell(8),
    "data 2, clipped": Cell(2, sections=CLIPPED),
    "tensor 2": Cell(2, {"tensor": 2}),
    "tensor 2, 2 chunks": Cell(2, {"tensor": 2, "tensor_chunks": 2}),
    "tensor 2, tied": Cell(2, {"tensor": 2}, sections=TIED),
    "pipeline 2": Cell(2, _pipeline(2), like=ALONE),
    "pipeline 2, 1+5 layers": Cell(2, _pipeline(2, stages=(1, 5)), like=ALONE),
    "pipeline 4, 1+2+2+1 layers": Cell(4, _pipeline(4, stages=(1, 2, 2, 1)), like=ALONE),
    "pipeline 2, tied": Cell(2, _pipeline(2), sections=TIED),
    "interleaved 2": Cell(2, _pipeline(2, "interleaved", stages=(1, 2, 2, 1)), like=ALONE),
    "interleaved zero bubble 2": Cell(2, _pipeline(2, "interleaved_zero_bubble"), like=ALONE),
    "zbv 2": Cell(2, _pipeline(2, "zbv", stages=(1, 2, 2, 1)), like=ALONE),
    "ZeRO 1 over 2": Cell(2, {"zero_stage": 1}, like="data 2"),
    "ZeRO 2 over 2": Cell(2, {"zero_stage": 2}),
    "ZeRO 3 over 2": Cell(2, {"zero_stage": 3}),
    "ZeRO 1 over 4": Cell(4, {"zero_stage": 1}, like="data 4"),
    "ZeRO 2 over 4, clipped": Cell(4, {"zero_stage": 2}, sections=CLIPPED),
    "ZeRO 3 over 4": Cell(4, {"zero_stage": 3}),
}

COMBINATIONS: dict[str, Cell] = {
    "data 2 × tensor 2": Cell(4, {"tensor": 2}),
    "data 2 × pipeline 2": Cell(4, _pipeline(2), like="data 2"),
    "data 2 × zbv 2": Cell(4, _pipeline(2, "zbv", stages=(1, 2, 2, 1)), like="data 2"),
    "data 2 × interleaved 2": Cell(4, _pipeline(2, "interleaved"), like="data 2"),
    "tensor 2 × pipeline 2": Cell(4, {"tensor": 2} | _pipeline(2), like="tensor 2"),
    "tensor 2 × zbv 2": Cell(4, {"tensor": 2} | _pipeline(2, "zbv"), like="tensor 2"),
    "ZeRO 1, 2 replicas of 2": Cell(4, {"zero_stage": 1, "shard": 2}, like="data 4"),
    "ZeRO 2, 2 replicas of 2": Cell(4, {"zero_stage": 2, "shard": 2}),
    "ZeRO 3, 2 replicas of 2": Cell(4, {"zero_stage": 3, "shard": 2}),
    "ZeRO 1 × tensor 2": Cell(4, {"zero_stage": 1, "tensor": 2}, like="data 2 × tensor 2"),
    "ZeRO 2 × tensor 2, tied": Cell(4, {"zero_stage": 2, "tensor": 2}, sections=TIED),
    "ZeRO 3 × tensor 2": Cell(4, {"zero_stage": 3, "tensor": 2}),
    "ZeRO 3 × tensor 2, 2 chunks": Cell(4, {"zero_stage": 3, "tensor": 2, "tensor_chunks": 2}),
    "ZeRO 1 × pipeline 2": Cell(4, {"zero_stage": 1} | _pipeline(2), like="data 2"),
    "ZeRO 1 × zbv 2": Cell(4, {"zero_stage": 1} | _pipeline(2, "zbv"), like="data 2"),
    "ZeRO 2 × pipeline 2, 1+5 layers": Cell(
        4, {"zero_stage": 2} | _pipeline(2, stages=(1, 5)), like="data 2"
    ),
    "ZeRO 2 × interleaved 2": Cell(4, {"zero_stage": 2} | _pipeline(2, "interleaved"), like="data 2"),
    "ZeRO 2 × zbv 2": Cell(4, {"zero_stage": 2} | _pipeline(2, "zbv"), like="data 2 × zbv 2"),
    "data 2 × tensor 2 × pipeline 2": Cell(8, {"tensor": 2} | _pipeline(2), sections=CLIPPED),
    "data 2 × tensor 2 × zbv 2, tied": Cell(
        8, {"tensor": 2} | _pipeline(2, "zbv", stages=(1, 2, 2, 1)), sections=TIED
    ),
    "data 2 × tensor 2 × interleaved 2": Cell(
        8, {"tensor": 2} | _pipeline(2, "interleaved"), like="data 2 × tensor 2"
    ),
    "data 2 × pipeline 4": Cell(8, _pipeline(4, stages=(1, 2, 2, 1)), like="data 2"),
    "ZeRO 1 × tensor 2 × pipeline 2": Cell(
        8, {"zero_stage": 1, "tensor": 2} | _pipeline(2), like="data 2 × tensor 2"
    ),
    "ZeRO 1 × tensor 2 × interleaved zero bubble 2": Cell(
        8, {"zero_stage": 1, "tensor": 2} | _pipeline(2, "interleaved_zero_bubble"), like="data 2 × tensor 2"
    ),
    # No ``like``: which of four gradients are summed first depends on the weight's position in its bucket,
    # and a stage's buckets contain other weights than the full model's.
    "ZeRO 2, 2 replicas of 2 × pipeline 2": Cell(8, {"zero_stage": 2, "shard": 2} | _pipeline(2)),
    "ZeRO 2, 2 replicas of 2 × interleaved 2": Cell(
        8, {"zero_stage": 2, "shard": 2} | _pipeline(2, "interleaved")
    ),
    "ZeRO 1, 2 replicas of 2 × interleaved zero bubble 2": Cell(
        8, {"zero_stage": 1, "shard": 2} | _pipeline(2, "interleaved_zero_bubble")
    ),
    "ZeRO 2, 2 replicas of 4": Cell(8, {"zero_stage": 2, "shard": 4}),
    "ZeRO 3, 2 replicas of 2 × tensor 2": Cell(8, {"zero_stage": 3, "shard": 2, "tensor": 2}),
}

LOW_PRECISION: dict[str, Cell] = {
    "bf16: data 2": Cell(2, {}, "bf16"),
    "bf16: tensor 2": Cell(2, {"tensor": 2}, "bf16"),
    "bf16: pipeline 2": Cell(2, _pipeline(2), "bf16", like=ALONE),
    "bf16: zbv 2": Cell(2, _pipeline(2, "zbv", stages=(1, 2, 2, 1)), "bf16", like=ALONE),
    "bf16: ZeRO 3 over 2": Cell(2, {"zero_stage": 3}, "bf16"),
    "bf16: ZeRO 1 × tensor 2": Cell(4, {"zero_stage": 1, "tensor": 2}, "bf16"),
    "bf16: data 2 × tensor 2 × pipeline 2": Cell(
        8, {"tensor": 2} | _pipeline(2), "bf16", like="bf16: ZeRO 1 × tensor 2"
    ),
    "bf16: ZeRO 1 × interleaved 2, 1+2+2+1 layers": Cell(
        4,
        {"zero_stage": 1} | _pipeline(2, "interleaved", stages=(1, 2, 2, 1)),
        "bf16",
        like="bf16: data 2",
    ),
    "bf16: ZeRO 2 × interleaved zero bubble 2": Cell(
        4, {"zero_stage": 2} | _pipeline(2, "interleaved_zero_bubble"), "bf16", like="bf16: data 2"
    ),
    "bf16: ZeRO 2, 2 replicas of 2 × zbv 2": Cell(
        8, {"zero_stage": 2, "shard": 2} | _pipeline(2, "zbv"), "bf16"
    ),
    "O1: data 2": Cell(2, {}, "O1"),
    "O1: interleaved 2": Cell(2, _pipeline(2, "interleaved"), "O1", like=ALONE),
    "O1: interleaved zero bubble 2": Cell(2, _pipeline(2, "interleaved_zero_bubble"), "O1", like=ALONE),
    "O1: zbv 2": Cell(2, _pipeline(2, "zbv"), "O1", like=ALONE),
    "O1: tensor 2": Cell(2, {"tensor": 2}, "O1"),
    "O1: data 2 × pipeline 2": Cell(4, _pipeline(2), "O1", like="O1: data 2"),
    "O2: data 2": Cell(2, {}, "O2"),
    "O2: tensor 2": Cell(2, {"tensor": 2}, "O2"),
    "O2: zbv 2": Cell(2, _pipeline(2, "zbv", stages=(1, 2, 2, 1)), "O2", like=ALONE),
    "O2: data 2 × tensor 2": Cell(4, {"tensor": 2}, "O2"),
    "O2: data 2 × tensor 2 × pipeline 2": Cell(
        8, {"tensor": 2} | _pipeline(2), "O2", like="O2: data 2 × tensor 2"
    ),
    "O2: data 2 × interleaved 2": Cell(4, _pipeline(2, "interleaved"), "O2", like="O2: data 2"),
    "O2: interleaved zero bubble 2": Cell(2, _pipeline(2, "interleaved_zero_bubble"), "O2", like=ALONE),
    "O3: data 2": Cell(2, {}, "O3"),
    "O3: data 2 × interleaved 2": Cell(4, _pipeline(2, "interleaved"), "O3", like="O3: data 2"),
    "O3: data 2 × interleaved zero bubble 2": Cell(
        4, _pipeline(2, "interleaved_zero_bubble"), "O3", like="O3: data 2"
    ),
    "O3: data 2 × tensor 2": Cell(4, {"tensor": 2}, "O3"),
    "O3: data 2 × tensor 2, 4 chunks": Cell(4, {"tensor": 2, "tensor_chunks": 4}, "O3"),
    "O3: data 2 × pipeline 2, 1+5 layers": Cell(4, _pipeline(2, stages=(1, 5)), "O3", like="O3: data 2"),
    "O3: data 2 × tensor 2 × zbv 2": Cell(
        8, {"tensor": 2} | _pipeline(2, "zbv"), "O3", like="O3: data 2 × tensor 2"
    ),
}

DEEPSPEED: dict[str, Cell] = {
    f"deepspeed, ZeRO {stage} over {ranks}": Cell(
        ranks, {"engine": "deepspeed", "zero_stage": stage}, like=like
    )
    for stage, ranks, like in (
        (0, 2, "data 2"),
        (1, 2, "data 2"),
        (2, 2, "ZeRO 2 over 2"),
        (3, 2, None),
        (1, 4, None),
        (2, 4, None),
        (3, 4, None),
    )
} | {
    "bf16: deepspeed, ZeRO 1 over 2": Cell(2, {"engine": "deepspeed", "zero_stage": 1}, "bf16"),
    "bf16: deepspeed, ZeRO 3 over 2": Cell(2, {"engine": "deepspeed", "zero_stage": 3}, "bf16"),
    "deepspeed, ZeRO 2 over 2, moments in host memory": Cell(
        2, {"engine": "deepspeed", "zero_stage": 2, "offload": "optimizer"}
    ),
    "deepspeed, ZeRO 3 over 2, weights in host memory": Cell(
        2, {"engine": "deepspeed", "zero_stage": 3, "offload": "parameters"}
    ),
    "deepspeed, ZeRO 3 over 4, clipped and tied": Cell(
        4, {"engine": "deepspeed", "zero_stage": 3}, sections=CLIPPED | TIED
    ),
}

MODEL_OPTIONS: dict[str, dict[str, Any]] = {
    "windows": {"model": {"sliding_window": 6, "sliding_window_pattern": 3}},
    "localized filtering": {"model": {"attention": "localized_filtering", "sliding_window": 12}},
    "norms of queries and keys": {"model": {"qk_norm": True, "head_size": 32}},
    "GPT": {"model": {"activation": "gelu", "norm": "layer", "biases": "all"}},
    "multipliers": {
        "model": {"embedding_multiplier": 4.0, "residual_multiplier": 0.5},
        "optimizer": {"learning_rate_factors": {"embedding": 0.5, "head": 0.25, "vectors": 2.0}},
    },
    "document masks": {"batch": {"document_mask": True}},
    "learned positions": {"model": {"positions": "learned"}, "batch": {"document_mask": True}},
    "soft caps, norms after parts, z-loss": {
        "model": {"attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0, "post_norms": True},
        "optimizer": {"z_loss": 1e-2},
    },
    "partial rotary positions in some layers": {
        "model": {"no_rope_layer_interval": 3, "partial_rotary_factor": 0.5, "rope_scaling": {"factor": 4.0}}
    },
}
"""Options of the model, each trained on every axis and in every kind of precision."""

OPTIONS: dict[str, Cell] = {
    f"{option}: {name}": replace(cell, sections=cell.sections | sections)
    for option, sections in MODEL_OPTIONS.items()
    for name, cell in {
        "tensor 2": Cell(2, {"tensor": 2}),
        "tensor 2, 2 chunks": Cell(2, {"tensor": 2, "tensor_chunks": 2}),
        "pipeline 2": Cell(2, _pipeline(2), like=ALONE),
        "zbv 2": Cell(2, _pipeline(2, "zbv"), like=ALONE),
        "ZeRO 3 over 2": Cell(2, {"zero_stage": 3}),
        "ZeRO 3 × tensor 2": Cell(4, {"zero_stage": 3, "tensor": 2}),
        "deepspeed, ZeRO 2 over 2": Cell(2, {"engine": "deepspeed", "zero_stage": 2}),
        "bf16, data 2 × tensor 2": Cell(4, {"tensor": 2}, "bf16"),
        "O1, data 2": Cell(2, {}, "O1"),
        "O2, tensor 2": Cell(2, {"tensor": 2}, "O2"),
        "O2, pipeline 2": Cell(2, _pipeline(2), "O2", like=ALONE),
        "O3, data 2 × tensor 2": Cell(4, {"tensor": 2}, "O3"),
    }.items()
    if not (option == "localized filtering" and "chunks" in name)
}

PARALLEL_BLOCKS: dict[str, Cell] = {
    "parallel block: tensor 2": Cell(2, {"tensor": 2}, sections=PARALLEL_BLOCK),
    "parallel block: tensor 2 × pipeline 2, 2 chunks": Cell(
        4, {"tensor": 2, "tensor_chunks": 2} | _pipeline(2), sections=PARALLEL_BLOCK
    ),
    "parallel block: zbv 2": Cell(2, _pipeline(2, "zbv"), sections=PARALLEL_BLOCK),
    "parallel block: ZeRO 2 over 2": Cell(2, {"zero_stage": 2}, sections=PARALLEL_BLOCK),
    "parallel block: ZeRO 3 over 2": Cell(2, {"zero_stage": 3}, sections=PARALLEL_BLOCK),
    "bf16, parallel block: tensor 2": Cell(2, {"tensor": 2}, "bf16", sections=PARALLEL_BLOCK),
    "O2, parallel block: tensor 2": Cell(2, {"tensor": 2}, "O2", sections=PARALLEL_BLOCK),
    "O3, parallel block: data 2 × tensor 2, 2 chunks": Cell(
        4, {"tensor": 2, "tensor_chunks": 2}, "O3", sections=PARALLEL_BLOCK
    ),
}

CELLS: dict[str, Cell] = SINGLE_AXES | COMBINATIONS | LOW_PRECISION | DEEPSPEED | OPTIONS | PARALLEL_BLOCKS

SHORT = ("O3: data 2 × tensor 2",)
"""Cells of ``make test``, which tests pipelines by themselves (``tests/trainer/parallel/pipeline``).
``make parity`` runs all."""
