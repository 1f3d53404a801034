"""`make bench`: ratios measured on a CPU, each of two things that run alternately. They are printed; none fails.

    python -m tests.benchmarks.cpu [NAME]     writes bench.json: {name: {ours, peer, ratio, unit, pass, goal, reached}}

``pass`` and ``goal`` are bounds on the ratio, ours ÷ peer. For times, ``other_clock`` is the same ratio by the clock that is
not judged: wall time if CPU time is judged, and vice versa. A row whose peer is missing prints this and writes no
entry; the exit code is 2 if the row was requested by name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from tests.benchmarks.data.preparation import PREPARING_ROWS
from tests.benchmarks.gpu_program.process import PRECISIONS
from tests.benchmarks.gpu_program.record import SIZES
from tests.benchmarks.gpu_program.row import gpu_program
from tests.benchmarks.pages.page_speed import UI_ROWS
from tests.benchmarks.platform.api_load import API_ROWS
from tests.benchmarks.platform.placement_rounds import PLACEMENT_ROWS
from tests.benchmarks.platform.reads import PLATFORM_ROWS
from tests.benchmarks.platform.run_start import START_ROWS
from tests.benchmarks.platform.transfers import TRANSFER_ROWS
from tests.benchmarks.report.entries import Entry, merge
from tests.benchmarks.report.results import RefusedError
from tests.benchmarks.trainer import fp8_parity, model_variants
from tests.benchmarks.trainer.cpu_rows import TRAINER_ROWS, Entries, Row
from tests.benchmarks.trainer.paired_differences import POWER, Difference, seeds_needed
from tests.benchmarks.trainer.paired_runs import Losses, Plan, prepare_sources
from trainwright.contracts.presets import PRESETS


def run_parity(given: argparse.Namespace) -> Entries:
    """Final validation loss of O1, O2 and O3 against bfloat16's."""
    data = prepare_sources(given.folder, 2_048)
    plan = Plan(
        data,
        PRESETS[given.model].model_dump(),
        steps=given.steps,
        seeds=tuple(range(1, given.seeds + 1)),
        learning_rate=given.rate,
    )
    return judge_parity(fp8_parity.losses(plan, given.processes, given.minutes))


def run_variants(given: argparse.Namespace) -> Entries:
    """Final validation loss of options and optimizers against a plain model with AdamW."""
    plan = Plan(
        prepare_sources(given.folder, 2_048),
        PRESETS[given.model].model_dump(mode="json"),
        steps=given.steps,
        seeds=tuple(range(1, given.seeds + 1)),
    )
    return model_variants.entries(model_variants.losses(plan, given.processes, given.minutes))


def judge_parity(losses: Losses) -> Entries:
    """Print the differences next to the control's, and return one entry per level."""
    found = fp8_parity.differences(losses)
    control = found.pop("reversed")
    bound = fp8_parity.bound_for(control)
    print(f"\n{'bf16, rows reversed':<20} {control}   {control.seeds} seeds; bound {bound:.3f} %")
    entries = {}
    for level, difference in found.items():
        verdict = fp8_parity.judge(difference, bound)
        needed = seeds_needed(difference.deviation, bound)
        print(
            f"{level:<20} {difference}   {verdict}; power {difference.power(bound):.2f}, "
            f"{POWER} needs {needed or 'more than 1,000'} seeds"
        )
        entries[f"parity-{level}"] = Entry(
            ours=mean(losses[level]),
            peer=mean(losses["bf16"]),
            ratio=1 + difference.mean / 100,
            unit="final validation loss",
            passes=1 + bound / 100,
            goal=1 + fp8_parity.GOAL_PERCENT / 100,
            reached=_reached(verdict, difference),
        )
    return entries


def _reached(verdict: fp8_parity.Verdict, difference: Difference) -> str:
    if verdict is fp8_parity.Verdict.PASSED:
        return "goal" if difference.upper <= fp8_parity.GOAL_PERCENT else "pass"
    return "no" if verdict is fp8_parity.Verdict.FAILED else verdict


ROWS: dict[str, Row] = {
    **TRAINER_ROWS,
    **PLATFORM_ROWS,
    **TRANSFER_ROWS,
    **PREPARING_ROWS,
    **START_ROWS,
    **API_ROWS,
    **PLACEMENT_ROWS,
    **UI_ROWS,
    "gpu-program": lambda given: gpu_program(given.toy, given.folder, given.sizes, given.precisions),
    "parity": run_parity,
    "variants": run_variants,
}
"""Each module has the rows of the part that it measures."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    missing = False
    with tempfile.TemporaryDirectory(prefix="trainwright-bench-") as folder:
        given.folder = given.folder or Path(folder)
        for name in [given.only] if given.only else ROWS:
            print(f"{name}:", flush=True)
            try:
                entries = ROWS[name](given)
            except RefusedError as error:
                print(f"  not measured, {error}", flush=True)
                missing = True
                continue
            for entry, found in entries.items():
                print(f"  {entry}: {_words(found)}", flush=True)
            merge(entries, given.json)
    return 2 if given.only and missing else 0


def _words(entry: Entry) -> str:
    return (
        f"ours {entry.ours:.4g}, peer {entry.peer:.4g} {entry.unit}; ratio {entry.ratio:.4f} "
        f"(pass {entry.passes:.4g}, goal {entry.goal:.4g}): {entry.reached}"
        + (f"; by the other clock {entry.other_clock:.4f}" if entry.other_clock is not None else "")
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description="Ratios measured on this CPU.")
    parser.add_argument("only", nargs="?", choices=ROWS, help="one row (default: all)")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="where entries are written")
    parser.add_argument("--toy", action="store_true", help="toy size: only checks that the row runs")
    parser.add_argument("--steps", type=int, default=300, help="parity, variants: steps of each training")
    parser.add_argument("--seeds", type=int, default=8, help="parity, variants: seeds; at least two")
    parser.add_argument("--rate", type=float, default=1e-3, help="parity: learning rate")
    parser.add_argument(
        "--minutes", type=float, default=240.0, help="parity, variants: minutes until the last seed starts"
    )
    parser.add_argument(
        "--model", choices=PRESETS, default="nano", help="parity, variants: preset of the model"
    )
    parser.add_argument(
        "--processes", type=int, default=2, help="parity, variants: trainings at the same time"
    )
    parser.add_argument(
        "--sizes", nargs="+", choices=SIZES, default=SIZES, help="gpu-program: models (default: all)"
    )
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=PRECISIONS,
        default=tuple(PRECISIONS),
        help="gpu-program: number formats (default: all)",
    )
    parser.add_argument(
        "--folder", type=Path, help="parity: where prepared text is stored (default: not stored)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
