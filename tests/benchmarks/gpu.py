"""`make gpu`: every check and benchmark that needs a GPU, each row in its own process.

    python -m tests.benchmarks.gpu                 all rows, at most ten minutes each
    python -m tests.benchmarks.gpu ROW             one row, appended to docs/benchmarks/gpu.json
    python -m tests.benchmarks.gpu --dry-run       the same code at toy size, on any machine; records nothing
    python -m tests.benchmarks.gpu --list          the rows

Without a GPU it fails and reports what is missing, unless a dry run is requested. A recorded row appears in the table
of docs/benchmarks.md immediately. A row that cannot be measured here, for example because a trainer is not installed,
is refused with the reason; when all rows run, that is not a failure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.benchmarks.harness.gpu_presence import why_no_gpu
from tests.benchmarks.report import table
from tests.benchmarks.report.results import RECORD, RefusedError, Result, append, result
from tests.benchmarks.trainer.gpu_rows import ROWS, Row, Setting
from trainwright_trainer.runtime.devices import use_expandable_segments

_LIMIT_SECONDS = 600
_REFUSED = 2
"""Exit code of a row that cannot be measured here."""

_NAMES = [row.name for row in ROWS]


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    use_expandable_segments()  # as the launcher does
    if given.list:
        print("\n".join(f"{row.name:<22} {row.says}" for row in ROWS))
        return 0
    missing = None if given.dry_run else why_no_gpu()
    if missing is not None:
        print(
            f"There is no GPU here: {missing}. `make gpu DRY=1` runs the same code at toy size.",
            file=sys.stderr,
        )
        return 1
    if given.row:
        row = ROWS[_NAMES.index(given.row)]
        return 0 if run_row(row, given.dry_run, given.record) else _REFUSED
    codes = {row.name: _in_a_process(row, given.dry_run, given.record) for row in ROWS}
    failed = [name for name, code in codes.items() if code not in (0, _REFUSED)]
    print(f"{len(ROWS) - len(failed)} of {len(ROWS)} rows succeeded; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def run_row(row: Row, dry: bool, record: Path = RECORD) -> Result | None:
    """Measure ``row`` here. Print the reason and return None if it cannot be measured. A dry run records nothing."""
    print(f"{row.name}: {row.says}", flush=True)
    command = f"make gpu ROW={row.name}"
    if dry:
        torch.set_num_threads(1)  # at toy size more threads only wait for each other
    try:
        with tempfile.TemporaryDirectory(prefix="trainwright-gpu-") as folder:
            found = result(row.name, command, row.run(Setting(Path(folder), dry, record)))
    except RefusedError as error:
        print(f"{row.name}: {error}", flush=True)
        return None
    print(_words(found), flush=True)
    if not dry:
        print(_judgement(row, found), flush=True)
        append(found, record)
        if record == RECORD:
            table.PAGE.write_text(table.page())
    return found


def _in_a_process(row: Row, dry: bool, record: Path) -> int:
    command = [sys.executable, "-m", "tests.benchmarks.gpu", row.name, "--record", str(record)]
    try:
        return subprocess.run([*command, *["--dry-run"] * dry], timeout=_LIMIT_SECONDS).returncode
    except subprocess.TimeoutExpired:
        print(f"{row.name}: took more than {_LIMIT_SECONDS} s and was stopped", flush=True)
        return 1


def _words(found: Result) -> str:
    figures = found.figures.items()
    return "\n".join(
        f"  {name} {value:.4g}" if isinstance(value, float) else f"  {name} {value}"
        for name, value in figures
    )


def _judgement(row: Row, found: Result) -> str:
    lines = []
    for mark in row.marks:
        value = found.figures.get(mark.figure)
        shown = mark.reached(value) if isinstance(value, int | float) else "not measured"
        lines.append(f"  → {mark.figure}: {shown} (pass {mark.passes}, goal {mark.goal or mark.passes})")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make gpu", description="Checks and benchmarks that need a GPU.")
    parser.add_argument("row", nargs="?", choices=_NAMES, help="one row (default: all)")
    parser.add_argument("--dry-run", action="store_true", help="at toy size; records nothing")
    parser.add_argument("--record", type=Path, default=RECORD, help="file that results are appended to")
    parser.add_argument("--list", action="store_true", help="list the rows and exit")
    return parser


if __name__ == "__main__":
    sys.exit(main())
