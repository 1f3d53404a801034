"""Recorded figures of the GPU's program, and their table in ``docs/benchmarks.md``.

Later records are compared with the first one. A later record may have only some rows: the table shows the newest
figures of each row.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.report.results import DOCS

RECORD = DOCS / "benchmarks" / "gpu_program.json"
SIZES = ("1.3b", "3b", "7b")

Figures = dict[str, dict[str, dict[str, Any]]]
"""By size and precision; names and units in ``figures.ProgramFigures``."""


def records(file: Path = RECORD) -> list[dict[str, Any]]:
    """The oldest first."""
    return json.loads(file.read_text()) if file.exists() else []


def append(figures: Figures, kernels: dict[str, Any], file: Path = RECORD) -> None:
    """``kernels`` are ``kernel_resources.resources``."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    new = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit,
        "figures": _rounded(figures),
        "kernels": kernels,
    }
    file.write_text(json.dumps([*records(file), new], indent=1) + "\n")


def _rounded(figures: Figures) -> Figures:
    return {
        size: {
            precision: {
                name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()
            }
            for precision, found in precisions.items()
        }
        for size, precisions in figures.items()
    }


def tables(file: Path = RECORD) -> str:
    """The figures of the first record and the newest ones."""
    found = records(file)
    if not found:
        return "Nothing is recorded yet.\n"
    first, later = found[0], found[1:]
    now = _newest(later)
    lines = [
        f"Before at {first['commit']} ({first['date']}); the last column says at which commit a row is now.",
        "",
        "| model | precision | launches per block | element-wise MB per block | saved bytes per token and layer "
        "| casts of shared inputs | FP8 matmuls checked | graph breaks, host syncs | optimizer bytes per parameter "
        "| estimated ms per step | estimated MFU % | now at |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    commits = {(size, one): record["commit"] for record in later for size, one in _rows(record)}
    for size in SIZES:
        for precision, before in first["figures"][size].items():
            commit = commits.get((size, precision), "not measured again")
            lines.append(_line(size, precision, before, now.get(size, {}).get(precision), commit))
    lines += ["", "| model | estimated FP8 ÷ BF16, by scaling |", "|---|---|"]
    for size in SIZES:
        together = {
            precision: figures
            for precision, figures in now.get(size, {}).items()
            if commits[size, precision] == commits.get((size, "bf16"))
        }
        lines.append(f"| {size} | {_ratios(first['figures'][size], together)} |")
    lines += [
        "",
        "| kernel of ours | registers | spilled bytes | shared bytes | bytes per store |",
        "|---|---|---|---|---|",
    ]
    kernels = next((record["kernels"] for record in reversed(found) if record.get("kernels")), {})
    for name, one in kernels.items():
        cells = [one["registers"], one["spilled_bytes"], one["shared_bytes"], one["store_bytes"]]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _newest(later: list[dict[str, Any]]) -> Figures:
    """The newest figures of each row."""
    newest: Figures = {}
    for record in later:
        for size, precision in _rows(record):
            newest.setdefault(size, {})[precision] = record["figures"][size][precision]
    return newest


def _rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    return [(size, precision) for size, found in record["figures"].items() for precision in found]


def ratio(figures: dict[str, dict[str, Any]], precision: str) -> float:
    """The estimated speed-up of a precision over bfloat16."""
    return float(figures["bf16"]["step_ms"] / figures[precision]["step_ms"])


def _line(size: str, precision: str, before: dict[str, Any], now: dict[str, Any] | None, commit: str) -> str:
    """``now`` is None if it was not measured again."""

    def cell(name: str, digits: int = 0) -> str:
        old, new = (f"{one[name]:,.{digits}f}" for one in (before, now or before))
        return new if old == new else f"{old} → {new}"

    stops = f"{cell('graph_breaks')}, {cell('host_syncs')}"
    cells = [
        cell("block_launches"),
        cell("block_elementwise_mb"),
        cell("saved_bytes"),
        cell("shared_input_casts"),
        cell("scaled_matmuls"),
        stops,
        cell("optimizer_bytes", 1),
        cell("step_ms"),
        cell("mfu_percent", 1),
        commit,
    ]
    return f"| {size} | {precision} | {' | '.join(cells)} |"


def _ratios(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> str:
    parts = []
    for precision in before:
        if precision != "bf16":
            old = f"{ratio(before, precision):.2f}"
            new = f" → {ratio(now, precision):.2f}" if {"bf16", precision} <= set(now) else ""
            parts.append(f"{precision.removeprefix('fp8-')} {old}{new}")
    return ", ".join(parts)
