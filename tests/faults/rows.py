"""The fault table: what each of its rows measured, printed at the end and written to ``faults.json`` after every row.

A test of a row has the mark ``fault_row(name="F1", trials=10, long=200)`` and the fixture ``row``. It injects the fault ``row.count``
times, each in a block of ``row.trial()``, and injects a defect once, which its own checks must catch (``row.control``). Several tests
may belong to a row. `make faults` runs all of them one after another, ``ONLY=F1`` one row, and ``LONG=1`` the larger number of trials.
"""

import json
import os
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import pytest

FILE = Path(os.environ.get("TRAINWRIGHT_FAULTS_FILE", "faults.json"))
IS_LONG = os.environ.get("TRAINWRIGHT_FAULTS_LONG", "") not in ("", "0")
MARK = "fault_row"


@dataclass
class Measured:
    """What the tests of one row have measured so far."""

    n: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    controls: list[bool] = field(default_factory=list)
    ratio: float | None = None
    """Effective training time ratio (`productivity.py`), of a row that measures it."""

    def entry(self) -> dict[str, int | float | bool | None]:
        """The row in ``faults.json``."""
        ratio = {} if self.ratio is None else {"ettr": round(self.ratio, 3)}
        return ratio | {
            "n": self.n,
            "violations": len(self.violations),
            "p50_seconds": _percentile(self.seconds, 50),
            "p95_seconds": _percentile(self.seconds, 95),
            "control_caught": bool(self.controls) and all(self.controls),
        }


@dataclass
class FaultRow:
    """The part of a row that one test measures."""

    count: int
    """Trials that the test makes."""

    measured: Measured
    _violations: int = 0

    def trial(self, what: str = "") -> AbstractContextManager[None]:
        """One injected fault. A failed assertion is a violation, and the row continues."""
        self.measured.n += 1
        return self.checking(what or f"trial {self.measured.n}")

    @contextmanager
    def checking(self, what: str) -> Iterator[None]:
        """What must hold after several faults: a failed assertion is a violation, but the block is no trial."""
        try:
            yield
        except AssertionError as error:
            self.measured.violations.append(f"{what}: {error}")
            self._violations += 1

    def recovered(self, since: float) -> None:
        """Record the time from ``since``, in seconds of `time.monotonic`, until now."""
        self.measured.seconds.append(time.monotonic() - since)

    @contextmanager
    def control(self) -> Iterator[None]:
        """The negative control: the same checks of a defect, which must fail in the block."""
        try:
            yield
        except AssertionError:
            self.measured.controls.append(True)
        else:
            self.measured.controls.append(False)

    def check(self) -> None:
        """Fail the test for its violations, and for a control that was not caught or not made."""
        assert self._violations == 0, "\n".join(self.measured.violations[-self._violations :])
        assert self.measured.controls, "the row has no negative control"
        assert all(self.measured.controls), "an injected defect was not caught"


ROWS = pytest.StashKey[dict[str, Measured]]()
HAS_PASSED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = {}


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker(MARK):
        item.add_marker(pytest.mark.slow(target="faults"))
        item.add_marker(pytest.mark.timeout(0 if IS_LONG else 7_200))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[HAS_PASSED] = report.passed
    return report


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Iterator[FaultRow]:
    """The row that the test belongs to."""
    mark = request.node.get_closest_marker(MARK)
    name, trials, long = mark.kwargs["name"], mark.kwargs["trials"], mark.kwargs["long"]
    rows = request.config.stash[ROWS]
    measured = rows.setdefault(name, Measured())
    part = FaultRow(long if IS_LONG else trials, measured)
    yield part
    write(rows)
    if request.node.stash.get(HAS_PASSED, False):
        part.check()


def write(rows: dict[str, Measured], file: Path = FILE) -> None:
    """Store the rows measured in this session beside those that the file already has."""
    before = json.loads(file.read_text()) if file.exists() else {}
    found = before | {name: measured.entry() for name, measured in rows.items()}
    ordered = dict(sorted(found.items(), key=lambda item: int(item[0].removeprefix("F"))))
    file.write_text(json.dumps(ordered, indent=2) + "\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[ROWS]
    if not rows:
        return
    terminalreporter.section("faults")
    for line in table(rows):
        terminalreporter.write_line(line)


def table(rows: dict[str, Measured]) -> list[str]:
    """The rows as text, with every violation below its row."""
    lines = [f"{'row':<4} {'N':>5} {'violations':>10} {'p50 s':>8} {'p95 s':>8}  negative control"]
    for name, measured in rows.items():
        entry = measured.entry()
        times = " ".join(
            f"{entry[key]:>8.2f}" if entry[key] is not None else f"{'–':>8}"
            for key in ("p50_seconds", "p95_seconds")
        )
        caught = "caught" if entry["control_caught"] else "NOT CAUGHT"
        lines.append(f"{name:<4} {measured.n:>5} {len(measured.violations):>10} {times}  {caught}")
        lines += [] if measured.ratio is None else [f"     ETTR {measured.ratio:.3f}"]
        lines += [f"     {violation}" for violation in measured.violations]
    return lines


def _percentile(seconds: list[float], percent: int) -> float | None:
    if len(seconds) < 2:
        return round(seconds[0], 3) if seconds else None
    return round(quantiles(seconds, n=100, method="inclusive")[percent - 1], 3)
