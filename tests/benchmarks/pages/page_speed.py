"""Row ``ui``: how long pages take in Chromium, and how much work they do during interaction.

    ui-interactive    the list of runs, opened with an empty cache, until rows are shown and a key press has an effect
    ui-frame-points   a growing run with a million points, zoomed and panned
    ui-frame-logs     a log of a million lines, scrolled while the run continues
    ui-compare        a hundred runs in twenty charts, until all are drawn

The cost of a frame or a task is script and layout on the page's main thread, in CPU time; wall time is the other clock. The
number of painted frames is only printed, as it depends on the machine. The browser is driven by ``*.spec.ts``, which write
what they measured; this module runs the platform.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from sqlalchemy import update

from tests.benchmarks.platform.reads import fill_log, fill_runs, fill_series
from tests.benchmarks.platform.server import EMAIL, TEAM, Caller, Site, running_site
from tests.benchmarks.report.entries import Entry, at_most
from tests.benchmarks.report.results import RefusedError
from trainwright.contracts.series import STORED_SERIES
from trainwright_backend.api.site import STATIC_FOLDER
from trainwright_backend.runs.tables import RunSummary

Entries = dict[str, Entry]
Figures = dict[str, float]

REPOSITORY = Path(__file__).resolve().parents[3]
COMPARED_RUNS = 100
COMPARED_SERIES = [*STORED_SERIES[:18], "accuracy", "perplexity"]
"""Twenty; the last two are custom metrics."""

COMPARED_STEPS = 10_000
GROWTH_SECONDS = 0.3
GROWTH_STEPS = 400
SPEC_SECONDS = 900


def ui(given: argparse.Namespace) -> Entries:
    """All four measurements, each with its own server."""
    if which(os.environ.get("CHROMIUM_PATH", "chromium")) is None:
        raise RefusedError("there is no Chromium: make chromium")
    if not (STATIC_FOLDER / "index.html").is_file():
        raise RefusedError("the frontend is not built: make frontend")
    return _interactive(given.toy) | _frames(given.toy) | _compare(given.toy)


def _interactive(toy: bool) -> Entries:
    with running_site("sqlite") as site:
        fill_runs(site, 1_000)
        seen = _run_spec(site, "interactive", times=2 if toy else 5)
    return {"ui-interactive": _at_most(seen["seconds"], 1.0, "s from navigation, median")}


def _frames(toy: bool) -> Entries:
    steps = 20_000 if toy else 1_000_000
    with running_site("sqlite") as site:
        run_id, run = site.start_run()
        fill_series(site, run_id, ["loss", "grad_norm"], steps)
        fill_series(site, run_id, ["mfu", "tokens", "tokens_per_second", "seconds"], 10_000)
        fill_log(site, run_id, steps)
        with _growing(site, run, steps):
            seen = {
                what: _run_spec(site, what, run=run, steps=steps, seconds=3 if toy else 10)
                for what in ("points", "logs")
            }
    found: Entries = {}
    for what, figures in seen.items():
        print(
            f"  {what}: {figures['frames']:.0f} frames of the page and {figures['painted']:.0f} painted in "
            f"{figures['seconds']:.1f} s; the longest task took {figures['task_wall']:.1f} ms of wall time"
        )
        frame = _at_most(figures["frame_p95"], 8.0, "ms of script and layout a frame, p95")
        task = _at_most(figures["task"], 50.0, "ms, the longest task")
        found[f"ui-frame-{what}"] = frame.with_other_clock(figures["frame_p95_wall"] / 8.0)
        found[f"ui-frame-{what}-task"] = task.with_other_clock(figures["task_wall"] / 50.0)
    return found


def _compare(toy: bool) -> Entries:
    runs, steps = (5, 10_000) if toy else (COMPARED_RUNS, COMPARED_STEPS)
    with running_site("sqlite") as site:
        compared = [_ended_run(site, number, steps) for number in range(runs)]
        seen = _run_spec(site, "compare", runs=compared, series=COMPARED_SERIES, times=1 if toy else 3)
    print(
        f"  compare: {seen['requests']:.0f} requests, {seen['megabytes']:.1f} MB; the page's main thread worked "
        f"{seen['busy_seconds']:.2f} s of {seen['seconds']:.2f}"
    )
    return {
        "ui-compare": _at_most(seen["seconds"], 2.0, "s from navigation until all charts are drawn, median")
    }


def _ended_run(site: Site, number: int, steps: int) -> str:
    run_id, run = site.start_run(name=f"run {number}", state="succeeded")
    fill_series(site, run_id, COMPARED_SERIES, steps, seed=number)
    last = dict.fromkeys(COMPARED_SERIES, 0.5)
    with site.database.write() as session:
        session.execute(update(RunSummary).where(RunSummary.run_id == run_id).values(step=steps, values=last))
    return run


@contextmanager
def _growing(site: Site, run: str, steps: int) -> Iterator[None]:
    """Add steps to the run's loss a few times a second."""
    done = threading.Event()
    thread = threading.Thread(target=_grow, args=(site.node(), run, steps, done))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _grow(node: Caller, run: str, last: int, done: threading.Event) -> None:
    first = last
    while not done.wait(GROWTH_SECONDS):
        block = {
            "steps": list(range(last + 1, last + GROWTH_STEPS + 1)),
            "series": {"loss": [0.5] * GROWTH_STEPS},
        }
        offsets = {"offset": last - first, "next_offset": last - first + GROWTH_STEPS}
        node.post(
            f"/api/v1/agent/runs/{run}/batches", {"fence": 1, "attempt": 1, **offsets, "metrics": [block]}
        )
        last += GROWTH_STEPS


def _run_spec(site: Site, what: str, **given: Any) -> Figures:
    """Run ``<what>.spec.ts``; returns the figures that it wrote."""
    with tempfile.TemporaryDirectory(prefix="trainwright-ui-") as folder:
        out = Path(folder) / "figures.json"
        options = {"email": EMAIL, "password": site.password, "team": TEAM, "out": str(out), **given}
        environment = os.environ | {
            "TRAINWRIGHT_E2E_URL": site.url,
            "TRAINWRIGHT_BENCH": json.dumps(options),
        }
        config = "../tests/benchmarks/pages/playwright.config.ts"
        command = ["infra/with-node.sh", "npx", "--no-install", "playwright", "test", "--config", config]
        done = subprocess.run(
            [*command, f"{what}.spec.ts"],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SPEC_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"{what}: the browser failed\n{done.stdout[-4_000:]}{done.stderr[-2_000:]}")
        figures: Figures = json.loads(out.read_text())
        return figures


def _at_most(ours: float, mark: float, unit: str) -> Entry:
    return at_most(ours, mark, f"{unit}; peer: the mark", 1.0, 1.0)


UI_ROWS = {"ui": ui}
