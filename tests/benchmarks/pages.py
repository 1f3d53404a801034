"""Row ``ui``: how long people wait for pages, and how much a page works while they look closer, in Chromium.

    ui-interactive    the list of runs, opened with an empty cache: rows are there and a key is answered
    ui-frame-points   a run with a series of a million points that grows, zoomed and panned
    ui-frame-logs     a log of a million lines, scrolled while the run goes on
    ui-compare        a hundred runs, twenty charts: all are drawn

What a frame and a task cost is script and layout on the page's main thread, by the thread's own clock; the same by the wall
is the other clock. Frames that reached the screen are printed: how many depends on who paints, here one of two cores.
The browser is driven by ``ui/*.spec.ts``, which write what they saw; this module makes the platform that they look at.
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

from tests.benchmarks.entries import Entry, at_most
from tests.benchmarks.platform_reads import fill_log, fill_runs, fill_series
from tests.benchmarks.platform_site import EMAIL, TEAM, Caller, Site, running_site
from tests.benchmarks.results import RefusedError
from trainwright.contracts.events import SERIES_UNITS
from trainwright_backend.core.site import STATIC_FOLDER
from trainwright_backend.runs.tables import RunSummary

Entries = dict[str, Entry]
Figures = dict[str, float]

REPOSITORY = Path(__file__).resolve().parents[2]
COMPARED_RUNS = 100
COMPARED_SERIES = [*list(SERIES_UNITS)[:18], "accuracy", "perplexity"]
"""Twenty: a page does not know what the last two are."""

COMPARED_STEPS = 10_000
GROWTH_SECONDS = 0.3
GROWTH_STEPS = 400
SPEC_SECONDS = 280


def ui(given: argparse.Namespace) -> Entries:
    """All four, each on a server of its own."""
    if which(os.environ.get("CHROMIUM_PATH", "chromium")) is None:
        raise RefusedError("there is no Chromium: make chromium")
    if not (STATIC_FOLDER / "index.html").is_file():
        raise RefusedError("the frontend is not built: make frontend")
    return _interactive(given.toy) | _frames(given.toy) | _compare(given.toy)


def _interactive(toy: bool) -> Entries:
    with running_site("sqlite") as site:
        fill_runs(site, 1_000)
        seen = _driven(site, "interactive", times=2 if toy else 5)
    return {"ui-interactive": _within(seen["seconds"], 1.0, "s from navigation, median")}


def _frames(toy: bool) -> Entries:
    steps = 20_000 if toy else 1_000_000
    with running_site("sqlite") as site:
        run_id, run = site.start_run()
        fill_series(site, run_id, ["loss", "grad_norm"], steps)
        fill_series(site, run_id, ["mfu", "tokens", "tokens_per_second", "seconds"], 10_000)
        fill_log(site, run_id, steps)
        with _growing(site, run, steps):
            seen = {
                what: _driven(site, what, run=run, steps=steps, seconds=3 if toy else 10)
                for what in ("points", "logs")
            }
    found: Entries = {}
    for what, figures in seen.items():
        print(
            f"  {what}: {figures['frames']:.0f} frames of the page and {figures['painted']:.0f} painted in "
            f"{figures['seconds']:.1f} s; the longest task took {figures['task_wall']:.1f} ms of wall time"
        )
        frame = _within(figures["frame_p95"], 8.0, "ms of script and layout a frame, p95")
        task = _within(figures["task"], 50.0, "ms, the longest task")
        found[f"ui-frame-{what}"] = frame.beside(figures["frame_p95_wall"] / 8.0)
        found[f"ui-frame-{what}-task"] = task.beside(figures["task_wall"] / 50.0)
    return found


def _compare(toy: bool) -> Entries:
    runs, steps = (5, 10_000) if toy else (COMPARED_RUNS, COMPARED_STEPS)
    with running_site("sqlite") as site:
        compared = [_ended_run(site, number, steps) for number in range(runs)]
        seen = _driven(site, "compare", runs=compared, series=COMPARED_SERIES, times=1 if toy else 3)
    print(
        f"  compare: {seen['requests']:.0f} requests, {seen['megabytes']:.1f} MB; the page's main thread worked "
        f"{seen['busy_seconds']:.2f} s of {seen['seconds']:.2f}"
    )
    return {
        "ui-compare": _within(seen["seconds"], 2.0, "s from navigation until all charts are drawn, median")
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
    """The loss of the run goes on a few times a second."""
    done = threading.Event()
    thread = threading.Thread(target=_grow, args=(site.node(), run, steps, done))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _grow(node: Caller, run: str, last: int, done: threading.Event) -> None:
    begun = last
    while not done.wait(GROWTH_SECONDS):
        block = {
            "steps": list(range(last + 1, last + GROWTH_STEPS + 1)),
            "series": {"loss": [0.5] * GROWTH_STEPS},
        }
        offsets = {"offset": last - begun, "next_offset": last - begun + GROWTH_STEPS}
        node.post(
            f"/api/v1/agent/runs/{run}/batches", {"fence": 1, "attempt": 1, **offsets, "metrics": [block]}
        )
        last += GROWTH_STEPS


def _driven(site: Site, what: str, **given: Any) -> Figures:
    """What the browser saw of ``what``: the figures that ``ui/<what>.spec.ts`` wrote."""
    with tempfile.TemporaryDirectory(prefix="trainwright-ui-") as folder:
        out = Path(folder) / "figures.json"
        told = {"email": EMAIL, "password": site.password, "team": TEAM, "out": str(out), **given}
        environment = os.environ | {
            "TRAINWRIGHT_E2E_URL": site.url,
            "TRAINWRIGHT_BENCH": json.dumps(told),
        }
        config = "../tests/benchmarks/ui/playwright.config.ts"
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
            raise RuntimeError(
                f"{what}: the browser did not come through\n{done.stdout[-4_000:]}{done.stderr[-2_000:]}"
            )
        figures: Figures = json.loads(out.read_text())
        return figures


def _within(ours: float, mark: float, unit: str) -> Entry:
    return at_most(ours, mark, f"{unit}; peer: the mark", 1.0, 1.0)


UI_ROWS = {"ui": ui}
