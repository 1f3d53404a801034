"""The tables of ``docs/benchmarks.md``, made from the recorded results.

python -m tests.benchmarks.report.table          update them
python -m tests.benchmarks.report.table --check  exit with 1 if they are out of date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.benchmarks.gpu_program import record
from tests.benchmarks.report.results import DOCS, Result, latest, read
from tests.benchmarks.trainer.gpu_rows import ROWS, Row

PAGE = DOCS / "benchmarks.md"


def page() -> str:
    """The page with up-to-date tables."""
    text = PAGE.read_text()
    for name, made in (("make gpu", tables(read())), ("gpu-program", record.tables())):
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        assert begin in text and end in rest, f"{PAGE} lacks the lines {begin!r} and {end!r}"
        text = before + begin + made + end + after
    return text


def tables(results: list[Result]) -> str:
    """The marks of each row and whether they are reached, then all figures of the measured rows."""
    newest = latest(results)
    lines = ["| row | figure | pass | goal | measured | where and when |", "|---|---|---|---|---|---|"]
    for row in ROWS:
        lines += _lines(row, newest.get(row.name))
    for row in ROWS:
        if row.name in newest:
            lines += _figures(row, newest[row.name])
    return "\n".join(lines) + "\n"


def _lines(row: Row, found: Result | None) -> list[str]:
    waits = f"waits for a GPU: `make gpu ROW={row.name}`"
    where = waits if found is None else f"{found.device}, torch {found.torch}, {found.date}"
    lines = []
    for mark in row.marks:
        value = None if found is None else found.figures.get(mark.figure)
        measured = "" if value is None else _number(value)
        if isinstance(value, int | float):
            measured += f" ({mark.reached(value)})"
        sign = "≤" if mark.at_most else "≥"
        goal = "" if mark.goal is None else f"{sign} {mark.goal:g}"
        lines.append(
            f"| `{row.name}` | {mark.figure} | {sign} {mark.passes:g} | {goal} | {measured} | {where} |"
        )
    return lines or [f"| `{row.name}` | | | | | {where} |"]


def _figures(row: Row, found: Result) -> list[str]:
    lines = [
        "",
        f"**`{row.name}`**: {row.says}. `{found.command}`, {found.device}, torch {found.torch}, {found.date}.",
    ]
    lines += ["", "| figure | |", "|---|---|"]
    return lines + [f"| {name} | {_number(value)} |" for name, value in found.figures.items()]


def _number(value: float | str) -> str:
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and abs(value) < 1e4
        else f"{value:,.0f}"
        if isinstance(value, int | float)
        else value
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    fresh = page()
    if parser.parse_args(arguments).check:
        return int(PAGE.read_text() != fresh)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
