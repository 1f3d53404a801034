"""`make parity-table ARGS=--layouts`: resume between all pairs of layouts in the tests, and write
``docs/parity.md``.

The tables, trainings and bounds are those of ``tests/trainer/training/test_layouts.py``; the suite runs a
subset.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path

import torch

from tests.parity.learning import prepare
from tests.trainer.training.test_layouts import LAST, SAVED, TABLES, Found, judged, tour

BEGIN, END = (
    "<!-- begin: make parity-table ARGS=--layouts -->\n",
    "<!-- end: make parity-table ARGS=--layouts -->\n",
)
_PATIENCE_SECONDS = 1_800
_HEAD = """| precision | from | to | losses after the detour | losses in the other layout |
|---|---|---|---|---|
"""


def main(page: Path) -> int:
    """Run all tables and write the results to ``page``. Returns 1 if a pair fails."""
    started, lines, failed, pairs = time.monotonic(), "", 0, 0
    with tempfile.TemporaryDirectory(prefix="trainwright-layouts-") as folder:
        data = prepare(Path(folder))
        for name, table in TABLES.items():
            for pair in tour(Path(folder) / name, data, table, _PATIENCE_SECONDS):
                found = judged(table, pair)
                print(
                    f"{name}: {' -> '.join(pair.names)}: {'; '.join(found.wrong) or 'continues'}", flush=True
                )
                lines += _line(name, pair.names, found)
                failed, pairs = failed + bool(found.wrong), pairs + 1
    minutes = (time.monotonic() - started) / 60
    _put(page, _HEAD + lines + "\n" + _when(pairs, minutes))
    return 1 if failed else 0


def _line(precision: str, names: tuple[str, str], found: Found) -> str:
    other, home = names
    back = "the same bits" if found.drift == 0 else f"{found.drift:.1e}, of blocks that were split"
    fails = f" **fails**: {'; '.join(found.wrong)}" if found.wrong else ""
    return f"| {precision} | {home} | {other} | {back} | {found.apart:.1e} of {found.allowed:.1e}{fails} |\n"


def _when(pairs: int, minutes: float) -> str:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, no GPU"
    return (
        f"{pairs} pairs, steps {SAVED + 1} to {LAST}; {time.strftime('%Y-%m-%d')}, {machine}, "
        f"torch {torch.__version__}, {minutes:.0f} minutes.\n"
    )


def _put(page: Path, table: str) -> None:
    text = page.read_text()
    assert BEGIN in text and END in text, f"{page} lacks the lines {BEGIN!r} and {END!r}"
    before, _, rest = text.partition(BEGIN)
    page.write_text(before + BEGIN + table + END + rest.partition(END)[2])
