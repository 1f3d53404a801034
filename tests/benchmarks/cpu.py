"""`make bench`: ratios that a CPU can show, each of two things that run in turn. They are printed and gate nothing.

    python -m tests.benchmarks.cpu [NAME]     writes bench.json: {name: {ours, peer, ratio, unit, pass, goal, reached}}

``pass`` and ``goal`` are bounds on the ratio, ours ÷ peer. Where time on a shared machine is judged, ``other_clock`` is the
ratio by the clock that does not judge: CPU time beside wall time, or the other way round. A row whose peer is not there
says so and leaves no entry; the exit code is 2 if it was asked for by name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from tests.benchmarks import parity
from tests.benchmarks.entries import Entry, merge
from tests.benchmarks.pages import UI_ROWS
from tests.benchmarks.platform_reads import PLATFORM_ROWS
from tests.benchmarks.platform_rows import DATA_AND_START_ROWS
from tests.benchmarks.results import RefusedError
from tests.benchmarks.trainer_rows import TRAINER_ROWS, Entries, Row
from trainwright.contracts.presets import PRESETS


def run_parity(given: argparse.Namespace) -> Entries:
    """Final validation loss of O1, O2 and O3 against bfloat16's. 25 minutes on two free cores."""
    data = parity.prepare_sources(given.folder, 2_048)
    return judge_parity(parity.losses(parity.plan_for(data, given.model, given.steps), given.processes))


def judge_parity(losses: dict[str, list[float]]) -> Entries:
    """Print the differences beside the control's; returns an entry a level."""
    found = parity.differences(losses)
    control = found.pop("reversed")
    print(f"\n{'bf16, rows reversed':<20} {control}")
    entries = {}
    for level, difference in found.items():
        why = parity.why_it_passes(difference, control)
        print(f"{level:<20} {difference}   {'passes: ' + why if why else 'does not pass'}")
        ours, peer = mean(losses[level]), mean(losses["bf16"])
        goal = 1 + parity.LARGEST_PERCENT / 100
        reached = "no" if why is None else "goal" if difference.upper <= parity.LARGEST_PERCENT else "pass"
        entries[f"parity-{level}"] = Entry(
            ours=ours,
            peer=peer,
            ratio=1 + difference.mean / 100,
            unit="final validation loss",
            passes=1 + max(parity.LARGEST_PERCENT, 1.5 * control.spread) / 100,
            goal=goal,
            reached=reached,
        )
    return entries


ROWS: dict[str, Row] = {
    **TRAINER_ROWS,
    **PLATFORM_ROWS,
    **DATA_AND_START_ROWS,
    **UI_ROWS,
    "parity": run_parity,
}
"""Each part of the platform has a module of its own with its rows."""


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
    parser.add_argument(
        "--toy", action="store_true", help="as small as it runs: shows that it does, and no more"
    )
    parser.add_argument("--steps", type=int, default=300, help="parity: steps of each training")
    parser.add_argument("--model", choices=PRESETS, default="nano", help="parity: preset of the model")
    parser.add_argument("--processes", type=int, default=2, help="parity: trainings at one time")
    parser.add_argument("--folder", type=Path, help="parity: where prepared text is kept (default: nowhere)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
