"""The plots and the measured table of ``docs/fp8.md``, computed by the trainer's own code on this CPU.

    python -m tests.benchmarks.trainer.fp8_plots [NAME …]      reduction, rounding, moments, updates, losses, saved

Plots are written to docs/fp8/NAME.svg, and the measurements are printed. Everything is seeded: a second call writes the same
files, except for the last bit of sums on another processor.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tests.benchmarks.report.results import DOCS
from tests.benchmarks.report.svg import Axis, Points, bars, lines
from tests.benchmarks.trainer.paired_runs import Plan, prepare_sources, write_job
from tests.benchmarks.trainer.timed_training import build_job, learn
from tests.trainer.fp8.adamw_formats import BLOCK, PAPER
from tests.trainer.fp8.state.test_gradients import draw_gradients, signal_to_noise
from tests.trainer.fp8.state.test_optimizer import (
    ALL_FLOAT32,
    E4M3_SECOND,
    FP8_MASTER,
    NO_DECAY,
    TO_NEAREST,
    UNSCALED_SECOND,
    OptimizerUnderTest,
    update_error,
)
from tests.trainer.model.test_recompute import Watch
from trainwright.contracts.precision_spec import FP8Spec, PrecisionKind
from trainwright.contracts.presets import PRESETS
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright_trainer.fp8.compute.conversion import convert
from trainwright_trainer.fp8.compute.formats import E4M3, amax_of, cast, scale_for
from trainwright_trainer.fp8.state.optimizer import StateFormats
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.loss import head_loss
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.residual_dtype import set_residual_dtype
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.training import materialize

FOLDER = DOCS / "fp8"
_RANKS = (2, 4, 8, 16, 32, 64, 128)


def reduction() -> str:
    """Signal-to-noise ratio of gradients summed over ranks, in two ways that send the same number of bytes."""
    shapes = {"weight": (512, 128)}
    hop_by_hop: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    for ranks in _RANKS:
        given = [draw_gradients(rank + 1, shapes)["weight"] for rank in range(ranks)]
        exact = torch.stack(given).double().sum(0)
        hop_by_hop.append((ranks, signal_to_noise(exact, _ring(given))))
        ours.append((ranks, signal_to_noise(exact, _at_once(given))))
    _print_rows(
        "ranks, ring dB, ours dB",
        [(ranks, a, b) for (ranks, a), (_, b) in zip(hop_by_hop, ours, strict=True)],
    )
    return lines(
        "Noise of a sum of gradients in E4M3",
        Axis("ranks", 2, 128, _RANKS, log=True),
        Axis("signal to noise, dB", 0, 40, range(0, 41, 10)),
        {"all-to-all, sum in float32, all-gather": ours, "ring that adds in E4M3 at each hop": hop_by_hop},
    )


def _ring(given: list[Tensor]) -> Tensor:
    """Each hop adds its own values and rounds, with the best scale for its sum."""
    total = _through_e4m3(given[0])
    for item in given[1:]:
        total = _through_e4m3(total + item)
    return total


def _at_once(given: list[Tensor]) -> Tensor:
    """``fp8.state.gradients``: one scale for all ranks, the sum in float32, rounded once more."""
    scale = scale_for(torch.stack([amax_of(item) for item in given]).amax(), E4M3)
    summed = torch.stack([cast(item / scale, E4M3).float() for item in given]).sum(0) * scale
    return _through_e4m3(summed)


def _through_e4m3(x: Tensor) -> Tensor:
    scale = scale_for(amax_of(x), E4M3)
    return cast(x / scale, E4M3).float() * scale


def rounding() -> str:
    """How far weights in float16 move on average, relative to the intended update."""
    steps = 200
    series: dict[str, Points] = {}
    spacing = 2.0**-15  # of float16 between 2^-5 and 2^-4, for any scale
    masters = ALL_FLOAT32._replace(master=PAPER.master)
    kinds = {"rounded stochastically": masters, "rounded to nearest": masters._replace(stochastic=False)}
    for name, formats in kinds.items():
        points = []
        for exponent in range(-7, 2):
            rate = spacing * 2.0**exponent
            trial = OptimizerUnderTest({"matrix": torch.full((8, 128), 0.05)}, formats, NO_DECAY)
            before = trial.weight("matrix")
            for _ in range(steps):
                trial.step({"matrix": torch.ones(8, 128)}, learning_rate=rate)
            moved = (before - trial.weight("matrix")).mean().item()
            points.append((2.0**exponent, moved / (steps * rate)))
        series[name] = points
        _print_rows(f"{name}: update ÷ spacing, moved ÷ intended", points)
    ticks = [2.0**exponent for exponent in range(-7, 2)]
    return lines(
        "How far 200 equal updates move a weight of 0.05 held in float16",
        Axis("size of the update ÷ spacing of float16 at the weight", ticks[0], ticks[-1], ticks, log=True),
        Axis("moved ÷ intended", 0, 1.5, (0, 0.5, 1, 1.5)),
        series,
    )


def moments() -> str:
    """A second moment after gradients became four times smaller."""
    series: dict[str, Points] = {}
    exact, points = 0.0, []
    kinds = {
        "E4M3 by blocks, stochastic": BLOCK,
        "E4M3 by blocks, to nearest": BLOCK._replace(stochastic=False),
    }
    for step in range(100):
        exact = 0.95 * exact + 0.05 * _size(step) ** 2
        points.append((step, exact))
    series["exact"] = points
    for name, formats in kinds.items():
        trial, points = OptimizerUnderTest({"matrix": torch.zeros(8, 128)}, formats, NO_DECAY), []
        for step in range(100):
            trial.step({"matrix": torch.full((8, 128), _size(step))})
            points.append((step, trial.number("second", "matrix").mean().item()))
        series[name] = points
    _print_rows("at step 99", [(name, found[-1][1]) for name, found in series.items()])
    return lines(
        "Second moment when gradients fall from 1 to 0.25 at step 20",
        Axis("step", 0, 100, range(0, 101, 20)),
        Axis("mean of v", 0, 0.8, (0, 0.2, 0.4, 0.6, 0.8)),
        series,
    )


def _size(step: int) -> float:
    return 1.0 if step < 20 else 0.25


def updates() -> str:
    """Relative error of Adam's update when exact moments are stored once in each way."""
    kinds = {
        "the recipe:\nm E4M3,\nv float16": PAPER,
        "both E4M3\nby 128": BLOCK,
        "the recipe,\nto nearest": TO_NEAREST,
        "v float16\nwithout scale": UNSCALED_SECOND,
        "v E4M3,\none scale": E4M3_SECOND,
    }
    found = {name: update_error(formats) for name, formats in kinds.items()}
    _print_rows(
        "relative error of m / (√v + ε)", [(name.replace("\n", " "), error) for name, error in found.items()]
    )
    return bars(
        "Error of Adam's update, by the format of its moments",
        Axis("relative L2 error", 0.01, 1e4, (0.01, 0.1, 1, 10, 100, 1_000, 10_000), log=True),
        found,
    )


def losses(steps: int = 250) -> str:
    """Training a small model on Python's sources, with optimizer states stored in several ways."""
    kinds = {
        "the recipe (O2)": PAPER,
        "float32 throughout": ALL_FLOAT32,
        "O2, rounded to nearest": TO_NEAREST,
        "masters E4M3, stochastic": FP8_MASTER,
        "masters E4M3, to nearest": FP8_MASTER._replace(stochastic=False),
        "v float16 without a scale": UNSCALED_SECOND,
    }
    series = {}
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_sources(Path(folder), 2_048)
        plan = Plan(data, PRESETS["nano"].model_dump(), sequences=8, steps=steps)
        for name, formats in kinds.items():
            series[name] = _smoothed(_train(plan, formats, Path(folder) / str(len(series))))
    _print_rows("mean of the last 20 losses", [(name, points[-1][1]) for name, points in series.items()])
    return lines(
        "Training loss of a small model, by how AdamW's state is stored",
        Axis("step", 0, steps, range(0, steps + 1, max(1, steps // 5))),
        Axis("loss, nats a token", 5, 9, (5, 6, 7, 8, 9)),
        series,
    )


def _train(plan: Plan, formats: StateFormats, folder: Path) -> list[float]:
    """Losses of a training whose optimizer stores its state in ``formats``."""

    def updater(*arguments: Any) -> FP8Updater:
        return FP8Updater(*arguments, formats=formats)

    folder.mkdir()
    with patch.object(materialize, "FP8Updater", updater):
        training = build_job(write_job(folder, plan, 1, precision={"kind": "fp8"}))
    made = training.engine.updater
    assert isinstance(made, FP8Updater) and made.optimizer.formats is formats, (
        "the updater was made elsewhere"
    )
    return [step["loss"] for step in learn(training, plan.steps) if "loss" in step]


def _smoothed(values: list[float], over: int = 20) -> Points:
    return [(end, sum(values[end - over : end]) / over) for end in range(over, len(values) + 1)]


def saved() -> str | None:
    """Bytes saved for the backward pass, per token, by precision and recomputation."""
    rows = []
    for kind in (PrecisionKind.FP32, PrecisionKind.BF16, PrecisionKind.FP8):
        for again in RecomputeKind:
            rows.append(
                (f"{kind}, recompute {again}", *(_saved_bytes(kind, again, chunk) for chunk in (4_096, 128)))
            )
    _print_rows("bytes per token: full logits, logits in chunks of 128 tokens", rows)
    return None


def _saved_bytes(kind: PrecisionKind, again: RecomputeKind, chunk_tokens: int) -> float:
    """Bytes per token of `mini` with 4,096 token ids, from the difference between two lengths, so that weights do not
    count."""
    few, many = (_held_bytes(kind, again, chunk_tokens, tokens) for tokens in (256, 512))
    return (many - few) / 256


def _held_bytes(kind: PrecisionKind, again: RecomputeKind, chunk_tokens: int, tokens: int) -> int:
    spec, vocabulary = PRESETS["mini"], 4_096
    model = Transformer(spec, vocabulary, tokens)
    initialize(model, spec, 0)
    if kind is PrecisionKind.FP8:
        initial = {name: weight.detach() for name, weight in model.named_parameters()}
        for name, weight in convert(model, FP8Spec(), torch.device("cpu")).weights.items():
            weight.attach(initial[name], torch.ones(()), scale_for(amax_of(initial[name]), E4M3))
    elif kind is PrecisionKind.BF16:
        set_residual_dtype(model, torch.bfloat16)
    recompute(model, MemorySpec(recompute=again))
    ids, targets = torch.randint(vocabulary, (2, 1, tokens))
    with Watch() as watch, torch.autocast("cpu", torch.bfloat16, enabled=kind is PrecisionKind.BF16):
        loss = head_loss(model.features(ids), model.head.weight, targets, chunk_tokens)
        held = watch.held_bytes
    assert loss.requires_grad
    return held


def _print_rows(what: str, rows: list[tuple[object, ...]] | Points) -> None:
    print(what)
    for row in rows:
        print("  ", *(f"{item:.4g}" if isinstance(item, float) else item for item in row))


PLOTS: dict[str, Callable[[], str | None]] = {
    "reduction": reduction,
    "rounding": rounding,
    "moments": moments,
    "updates": updates,
    "losses": losses,
    "saved": saved,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PLOTS)}; all when empty")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where plots are written")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in PLOTS]
    if unknown:
        parser.error(f"no such plot: {unknown[0]}")
    torch.set_num_threads(1)
    given.folder.mkdir(exist_ok=True)
    for name in given.names or PLOTS:
        plot = PLOTS[name]()
        if plot is not None:
            (given.folder / f"{name}.svg").write_text(plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
