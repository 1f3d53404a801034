"""CPU time of the tests: the slowest ones, the minutes by folder, and a failure when a folder is far over its budget.

A test is charged for its pytest worker and every process below it, running or ended, since the previous test. Unlike
elapsed time, this hardly depends on what else the machine does.
"""

from __future__ import annotations

import os
import resource
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from math import ceil
from pathlib import Path

import pytest

TOLERANCE = 1.5
"""A folder fails the session when it uses more than this multiple of its budget."""

SLOWEST = 10
"""How many of the slowest tests are listed."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class CpuTime:
    """A pytest plugin: it measures in every worker and reports in the process that prints the summary."""

    def __init__(self, budgets: Mapping[str, float]) -> None:
        """Take the budgets, in CPU seconds by folder. Tests marked ``slow`` do not count towards them."""
        self._budgets = budgets
        self._previous = cpu_seconds()
        self._tests: dict[str, float] = defaultdict(float)
        self._folders: dict[str, float] = defaultdict(float)
        self._elapsed: dict[str, float] = defaultdict(float)
        self._files: dict[str, float] = defaultdict(float)
        self._budgeted: dict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        self._previous = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = cpu_seconds()
        spent, self._previous = max(0.0, now - self._previous), now
        slow = item.get_closest_marker("slow") is not None
        report.user_properties = [*report.user_properties, ("cpu_seconds", spent), ("slow", slow)]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        spent = properties.get("cpu_seconds")
        if not isinstance(spent, float):  # a crashed worker's test was never measured
            return
        folder = folder_of(report.nodeid)
        self._tests[report.nodeid] += spent
        self._folders[folder] += spent
        self._elapsed[folder] += report.duration
        self._files[report.nodeid.partition("::")[0]] += report.duration
        if not properties["slow"]:
            self._budgeted[folder] += spent

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.over_budget() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tests:
            return
        terminalreporter.section(f"{SLOWEST} slowest tests, CPU seconds")
        for test, spent in _largest_first(self._tests)[:SLOWEST]:
            terminalreporter.write_line(f"{spent:7.1f}  {test}")
        terminalreporter.section("minutes by folder: CPU, elapsed, CPU budget")
        for folder, spent in _largest_first(self._folders):
            budget = f"{self._budgets[folder] / 60:7.2f}" if folder in self._budgets else "      -"
            elapsed = self._elapsed[folder] / 60
            terminalreporter.write_line(f"{spent / 60:7.2f} {elapsed:7.2f} {budget}  {folder}")
        for complaint in self.over_budget():
            terminalreporter.write_line(complaint, red=True)

    def longest_files(self, seconds: float) -> dict[str, float]:
        """Elapsed seconds of the files that took at least ``seconds``, the longest first."""
        return {file: round(took, 1) for file, took in _largest_first(self._files) if took >= seconds}

    def used_seconds(self) -> dict[str, int]:
        """CPU seconds of each folder's tests that are not slow, rounded up: what its budget should be."""
        return {folder: ceil(spent) for folder, spent in sorted(self._budgeted.items())}

    def over_budget(self) -> list[str]:
        """One sentence for each folder that fails the session."""
        return [
            f"OVER BUDGET, which fails the session: {folder} used {spent:.0f} CPU seconds, its budget is {budget:.0f}"
            for folder, budget in self._budgets.items()
            if (spent := self._budgeted[folder]) > TOLERANCE * budget
        ]


def folder_of(nodeid: str) -> str:
    """The folder that a test is reported under: at most two levels deep."""
    parts = Path(nodeid.partition("::")[0]).parts
    return "/".join(parts[: min(2, len(parts) - 1)])


def cpu_seconds() -> float:
    """CPU time of this process, its ended children and every process below it; 0 for the latter without ``/proc``."""
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return own + sum(map(_process_seconds, _descendants("self")))


def _largest_first(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda pair: -pair[1])


def _descendants(process: str) -> Iterator[str]:
    """Process ids of living children, grandchildren and so on. Which thread started a child does not matter."""
    tasks = Path(f"/proc/{process}/task")
    try:
        threads = list(tasks.iterdir())
    except OSError:
        return  # the process has ended, or there is no /proc
    for thread in threads:
        for child in _read(thread / "children").split():
            yield child
            yield from _descendants(child)


def _process_seconds(process: str) -> float:
    """CPU time of a process and of its children that ended."""
    fields = _read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_PER_SECOND


def _read(file: Path) -> str:
    """The content; empty when the process has ended."""
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
