"""`make parity-table`: train every cell of the matrix and write the results to ``docs/parity.md``.

    python -m tests.parity.run [CELL …] [--steps 20] [--minutes 60]
    python -m tests.parity.run --layouts

Runs the named cells, or all. Cells that are not run keep their row. A row says with how many steps and when
it was measured. The exit code is 1 if a cell is too far from one process, or if the bounds of a precision
would not detect a weight without a gradient in the last step. ``--layouts`` runs ``layouts`` instead of the
cells.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, TypeAdapter

from tests.parity import layouts
from tests.parity.cases import ALONE, CELLS
from tests.parity.learning import prepare
from tests.parity.matrix import Matrix, Verdict

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, RECORD = DOCS / "parity.md", DOCS / "parity.json"
_BEGIN, _END = "<!-- begin: make parity-table -->\n", "<!-- end: make parity-table -->\n"
_PATIENCE_SECONDS = 1_800


class Row(BaseModel):
    """The last measurement of a cell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int
    date: str
    torch: str
    found: dict[str, float]
    """Distance from one process, by kind."""

    allowed: dict[str, float]
    same_bits: bool
    wrong: list[str]


_ROWS = TypeAdapter(dict[str, Row])


def read() -> dict[str, Row]:
    return _ROWS.validate_json(RECORD.read_bytes()) if RECORD.exists() else {}


def page(rows: dict[str, Row]) -> str:
    """The page with a new table."""
    text = PAGE.read_text()
    assert _BEGIN in text and _END in text, f"{PAGE} lacks the lines {_BEGIN!r} and {_END!r}"
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + table(rows) + _END + rest.partition(_END)[2]


def table(rows: dict[str, Row]) -> str:
    lines = [
        "| cell | ranks | loss | norm | gradient, first step | last step | bits | steps, when |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(name, rows.get(name)) for name in CELLS)]) + "\n"


def _line(name: str, row: Row | None) -> str:
    cell = CELLS[name]
    start = f"| {name} | {cell.ranks} |"
    if cell.not_built is not None:
        return f"{start} | | | | | not built: {cell.not_built} |"
    if row is None:
        return f"{start} | | | | | not run |"
    numbers = " | ".join(
        f"{row.found[kind]:.1e} of {row.allowed[kind]:.1e}" for kind in ("loss", "norm", "first", "last")
    )
    bits = f"those of {cell.like or ALONE}" if row.same_bits else ""
    when = f"{row.steps}, {row.date}, torch {row.torch}"
    failed = f": **fails**, {'; '.join(row.wrong)}" if row.wrong else ""
    return f"{start} {numbers} | {bits} | {when}{failed} |"


def _row(verdict: Verdict, steps: int) -> Row:
    return Row(
        steps=steps,
        date=time.strftime("%Y-%m-%d"),
        torch=torch.__version__,
        found=verdict.found._asdict(),
        allowed=verdict.allowed._asdict(),
        same_bits=verdict.bits,
        wrong=verdict.wrong,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    unknown = [name for name in given.cells if name not in CELLS]
    if unknown:
        print(f"no such cell: {unknown[0]}; there are: {', '.join(CELLS)}", file=sys.stderr)
        return 2
    return layouts.main(PAGE) if given.layouts else _compare(given.cells or list(CELLS), given)


def _compare(cells: list[str], given: argparse.Namespace) -> int:
    until = time.monotonic() + 60 * given.minutes
    failed: list[str] = []
    judged: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="trainwright-parity-") as folder:
        matrix = Matrix(Path(folder), prepare(Path(folder)), given.steps, _PATIENCE_SECONDS)
        for verdict in matrix.verdicts(cells, until):
            print(f"{verdict.name}: {'; '.join(verdict.wrong) or 'equal'}", flush=True)
            failed += [verdict.name] if verdict.wrong else []
            judged.add(verdict.name)
            _keep(verdict, given.steps)
        if any(CELLS[name].not_built is None for name in set(cells) - judged):
            print(f"parity: {given.minutes} minutes are over; the rows of other cells are unchanged")
        for precision, weights in matrix.undetected_zeros({CELLS[name].precision for name in cells}).items():
            failed += weights
            print(f"{precision}: {f'no gradient of {weights} would be missed' if weights else 'bounds hold'}")
    return 1 if failed else 0


def _keep(verdict: Verdict, steps: int) -> None:
    rows = read() | {verdict.name: _row(verdict, steps)}
    kept = {name: rows[name].model_dump() for name in CELLS if name in rows}
    fresh = RECORD.with_suffix(".new")
    fresh.write_text(json.dumps(kept, indent=1) + "\n")
    fresh.replace(RECORD)  # another such run may be reading it
    PAGE.write_text(page(rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.parity.run", description=__doc__)
    parser.add_argument("cells", nargs="*", help="names of cells; all when empty")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--layouts", action="store_true", help="pairs of layouts between which a run continues, no cells"
    )
    parser.add_argument(
        "--minutes", type=float, default=240.0, help="minutes after which no further cell starts"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
