"""Options of models, optimizers and precisions, mixed with each other and with layouts by chance: each run trains as one process does.

`make parity` trains each option alone on every axis, with bounds for each weight. Here runs with many options must have the losses
of one process in two steps, and the gradient norm in the first. FP8's rounding can change the norm of the second by 5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import GRADIENT_BOUND, Learned, job_writer, learn
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.errors import BadJobError

Sections = dict[str, dict[str, Any]]

STEPS = 2
PRECISIONS = ("fp32", "fp32", "bf16", "O1", "O2", "O3")
SEEDS = range(24)
NEXT_FINER = {"bf16": "fp32", "O1": "bf16", "O2": "bf16", "O3": "bf16"}
FP8_WIDTHS = {"width": 64, "heads": 4, "kv_heads": 2, "head_size": 32, "feed_forward": 128}


@pytest.mark.slow(target="layouts")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_mixture_of_options_trains_as_in_one_process(
    seed: int, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    precision = PRECISIONS[seed % len(PRECISIONS)]
    write = job_writer(data, tmp_path_factory)
    ranks, sections = next(_valid(seed, precision, write))
    print(ranks, sections)  # shown if the test fails
    found = _train(write, ranks, sections)
    alone = {name: section for name, section in sections.items() if name != "parallelism"}
    (wanted,) = _train(write, 1, alone)
    controls = [wanted]
    if precision in NEXT_FINER:
        controls += _train(write, 1, alone | _precision(NEXT_FINER[precision]))
        controls += _train(write, 1, alone | {"batch": alone["batch"] | {"micro_sequences": 2}})
    for one in found:
        assert (one.losses, one.norms) == (found[0].losses, found[0].norms), "ranks differ"
    ours, theirs = _compared(found[0]), _compared(wanted)
    # Another order of the same sums changes them as little as in float32, and rounding as much as the next finer precision
    # or micro batches of two sequences do.
    rounding = max(_distance(_compared(control), theirs) for control in controls)
    assert _distance(ours, theirs) <= GRADIENT_BOUND * max(theirs) + 3 * rounding


def _compared(trained: Learned) -> list[float]:
    return [*trained.losses, trained.norms[0]]


def _distance(ours: list[float], theirs: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


def _train(write: Callable[..., Path], ranks: int, sections: Sections) -> list[Learned]:
    job_file = write(ranks, **sections)
    return on_mesh(read_job(job_file).spec.degrees, learn, job_file, STEPS)


def _valid(seed: int, precision: str, write: Callable[..., Path]) -> Iterator[tuple[int, Sections]]:
    """Mixtures that no rule refuses."""
    draw = Random(seed)
    while True:
        ranks = draw.choice((2, 4, 4))
        sections = {
            "model": _model(draw) | (FP8_WIDTHS if precision.startswith("O") else {}),
            "optimizer": _optimizer(draw, precision),
            "batch": {"document_mask": draw.random() < 0.3},
            "memory": {"recompute": draw.choice(("none", "none", "selective", "full"))},
            "parallelism": _parallelism(draw, ranks, precision),
        } | _precision(precision)
        try:
            read_job(write(ranks, **sections))
        except (BadJobError, ValidationError):
            continue
        yield ranks, sections


def _model(draw: Random) -> dict[str, Any]:
    options: list[dict[str, Any]] = [
        {"tied_embeddings": False},
        {"positions": "learned"},
        {"no_rope_layer_interval": 2},
        {"partial_rotary_factor": 0.5},
        {"rope_scaling": {"factor": 4.0}},
        {"norm": "layer"},
        {"biases": draw.choice(("query_key_value", "all"))},
        {"activation": draw.choice(("gelu", "geglu"))},
        {"attention": "localized_filtering"},
        {"sliding_window": draw.choice((5, 12))},
        {"sliding_window": 6, "sliding_window_pattern": draw.choice((2, 3))},
        {"qk_norm": True},
        {"attn_logit_softcapping": 2.0},
        {"final_logit_softcapping": 3.0},
        {"block": "parallel"},
        {"post_norms": True},
        {"embedding_multiplier": 3.0, "residual_multiplier": 0.5},
    ]
    chosen: dict[str, Any] = {"layers": 4}
    for option in draw.sample(options, draw.randint(3, 7)):
        chosen |= option
    return chosen


def _optimizer(draw: Random, precision: str) -> dict[str, Any]:
    options: list[dict[str, Any]] = [
        {"z_loss": 1e-2},
        {"learning_rate_factors": {"embedding": 0.5, "vectors": 2.0}},
        {"weight_decay_of": draw.choice(("block_matrices", "all"))},
        {} if precision.startswith("O") else {"kind": draw.choice(("lamb", "muon"))},
    ]
    chosen: dict[str, Any] = {}
    for option in draw.sample(options, 2):
        chosen |= option
    return chosen


def _parallelism(draw: Random, ranks: int, precision: str) -> dict[str, Any]:
    tensor = draw.choice((1, 2)) if precision != "O3" or ranks == 4 else 1
    chosen: dict[str, Any] = {"tensor": tensor}
    if tensor > 1 and draw.random() < 0.3:
        chosen["tensor_chunks"] = 2
    rest = ranks // tensor
    if rest > 1 and draw.random() < 0.5:
        schedules = ("1f1b", "interleaved", "interleaved_zero_bubble", "zbv")
        chosen |= {"pipeline": 2, "schedule": draw.choice(schedules)}
        rest //= 2
    if rest > 1 and not precision.startswith("O"):
        chosen["zero_stage"] = draw.randint(0, 3)
    return chosen


def _precision(name: str) -> Sections:
    if name in ("fp32", "bf16"):
        return {"precision": {"kind": name, "compile": "off"}}
    return {"precision": {"kind": "fp8", "compile": "off", "fp8": {"level": name, "scaling": "tensor"}}}
