"""What applies to every test: the ``gpu`` and ``slow`` marks, the order of files, CPU budgets, and the closing line.

Tests that need CUDA use the fixture ``cuda`` or ``device`` of ``tests/cuda_stand_in``: each runs on the stand-in
everywhere, and, with the mark ``gpu``, on a GPU. Only the latter may be skipped, and tests with the mark ``namespaces`` where network
namespaces cannot be created; a session with any other skip fails.
Tests that ``make test`` leaves to another target carry ``@pytest.mark.slow(target="…")``, where the target is one of
``.ci/targets``. torch is imported here only when a GPU test was collected.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.cpu_time import CpuTime
from tests.network_namespaces import why_no_namespaces
from tests.part import Part

pytest_plugins = ["tests.services", "tests.faults.rows", "tests.cuda_stand_in.fixtures", "pytester"]

ROOT = Path(__file__).resolve().parents[1]
DURATIONS = ROOT / "tests" / "durations.json"
"""Recorded seconds of the slowest files, for the order in which workers run them."""

LONG_FILE_SECONDS = 5.0

CPU_BUDGETS: dict[str, float] = {
    "tests/agent": 130,
    "tests/architecture": 100,
    "tests/backend": 800,
    "tests/benchmarks": 40,
    "tests/docs": 20,
    "tests/e2e": 190,
    "tests/integration": 190,
    "tests/parity": 80,
    "tests/planner": 15,
    "tests/prepare": 150,
    "tests/sdk": 20,
    "tests/trainer": 480,
}
"""CPU seconds of ``make test`` by folder. A folder that uses more than 1.5 times its budget fails the session.

They are about twice those of an idle machine: where cores share their units and caches with other machines, the same
work took up to 2.5 times as long.
"""

SLOW_TIMEOUT_SECONDS = 1_200
"""For a slow test that does not set its own timeout. It ends one that hangs; it does not judge the machine."""

MAY_BE_SKIPPED = frozenset({"gpu", "namespaces"})

CPU_TIME = pytest.StashKey[CpuTime]()

# Workers share the cores, and threads that wait for each other's cores spin. A trainer sets its own number.
os.environ.setdefault("OMP_NUM_THREADS", "1")

_started = time.monotonic()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return ROOT


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-durations",
        action="store_true",
        help=f"write {DURATIONS.name}, for the order of test files, and print the CPU seconds for CPU_BUDGETS",
    )
    parser.addoption("--part", metavar="k/n", help="run every n-th of the selected tests, from the k-th on")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CPU_TIME] = CpuTime(CPU_BUDGETS)
    config.pluginmanager.register(config.stash[CPU_TIME])
    if part := config.getoption("part"):
        config.pluginmanager.register(Part(part))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _put_longest_files_first(items)
    check_slow_marks(items)
    check_gpu_marks(items)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_SECONDS))
        if item.get_closest_marker("namespaces") and (why := why_no_namespaces()):
            item.add_marker(pytest.mark.skip(reason=why))
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu or _has_cuda():
        return
    for item in on_gpu:
        item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):  # a worker of pytest-xdist prints nothing
        return (yield)
    skipped = reporter.stats.get("skipped", [])
    forbidden = [report for report in skipped if MAY_BE_SKIPPED.isdisjoint(report.keywords)]
    if forbidden and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if session.config.getoption("--record-durations"):
        cpu_time = session.config.stash[CPU_TIME]
        DURATIONS.write_text(json.dumps(cpu_time.longest_files(LONG_FILE_SECONDS), indent=2) + "\n")
        reporter.write_line(f"CPU_BUDGETS = {cpu_time.used_seconds()}")
    result = yield
    for report in forbidden:
        reporter.write_line(f"SKIPPED WITHOUT A GPU MARK, which fails the session: {report.nodeid}", red=True)
    if not session.config.option.collectonly:
        reporter.write_line(_closing_line(reporter))
    return result


def slow_targets() -> dict[str, list[str]]:
    """The make targets that run tests marked ``slow``, each with the folders whose tests it runs."""
    lines = (ROOT / ".ci" / "targets").read_text().splitlines()
    names = [line.partition(":")[0] for line in lines if not line.startswith("#")]
    makefile = (ROOT / "Makefile").read_text()
    recipes = {name: re.search(rf"^{name}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE) for name in names}
    return {
        name: re.findall(r" (tests/[\w/]+)", recipe[1]) if recipe else [] for name, recipe in recipes.items()
    }


def check_slow_marks(items: Iterable[pytest.Item]) -> None:
    """Raises:
    UsageError: no target runs a slow test, because its mark or its folder belongs to none.
    """
    targets = slow_targets()
    for item in items:
        for mark in item.iter_markers("slow"):
            folders = targets.get(mark.kwargs.get("target", ""), [])
            if not any(item.nodeid.startswith(f"{folder}/") for folder in folders):
                raise pytest.UsageError(
                    f"{item.nodeid}: slow(target=…) must name a target that runs its folder, one of {targets}"
                )


def check_gpu_marks(items: list[pytest.Item]) -> None:
    """Raises:
    UsageError: a test with the mark ``gpu`` has no variant on the stand-in.
    """
    for item in items:
        if item.get_closest_marker("gpu") and not {"cuda", "device"} & set(item.fixturenames):
            raise pytest.UsageError(f"{item.nodeid}: takes its GPU from the fixture `cuda` or `device`")


def _put_longest_files_first(items: list[pytest.Item]) -> None:
    """If a long file came last, one worker would run it while the others idle."""
    seconds = json.loads(DURATIONS.read_text())
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0.0))


def _closing_line(reporter: pytest.TerminalReporter) -> str:
    count = {name: len(reports) for name, reports in reporter.stats.items()}
    words = [f"{count[name]} {name}" for name in ("failed", "passed", "skipped", "error") if count.get(name)]
    on_gpu = [report for report in reporter.stats.get("skipped", []) if "gpu" in report.keywords]
    seconds = time.monotonic() - _started
    return f"=== {', '.join(words)} in {seconds:.1f}s (GPU tests skipped: {len(on_gpu)}) ==="


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
