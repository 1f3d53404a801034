"""What holds for every test: the ``gpu`` mark, and the closing lines of a session.

Tests that need CUDA carry ``@pytest.mark.gpu``; they are the only ones that may be skipped, and a session with any
other skip fails. torch is imported here only when such a test was collected.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["tests.services"]

ROOT = Path(__file__).resolve().parents[1]

LONG_FILES = (
    "tests/e2e/test_browser.py",
    "tests/e2e/test_pages.py",
    "tests/trainer/test_benchmarks.py",
    "tests/e2e/test_layout.py",
    "tests/parity/test_parity.py",
)

_started = time.monotonic()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return ROOT


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
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
    forbidden = [report for report in reporter.stats.get("skipped", []) if "gpu" not in report.keywords]
    if forbidden and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    result = yield
    for report in forbidden:
        reporter.write_line(f"SKIPPED WITHOUT A GPU MARK, which fails the session: {report.nodeid}", red=True)
    if not session.config.option.collectonly:
        reporter.write_line(_closing_line(reporter))
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_folder(report.nodeid)] += report.duration
    if seconds:
        terminalreporter.section("minutes of work by folder")
    for folder, total in seconds.most_common():
        terminalreporter.write_line(f"{total / 60:7.2f}  {folder}")


def _closing_line(reporter: pytest.TerminalReporter) -> str:
    count = {name: len(reports) for name, reports in reporter.stats.items()}
    words = [f"{count[name]} {name}" for name in ("failed", "passed", "skipped", "error") if count.get(name)]
    on_gpu = [report for report in reporter.stats.get("skipped", []) if "gpu" in report.keywords]
    seconds = time.monotonic() - _started
    return f"=== {', '.join(words)} in {seconds:.1f}s (GPU tests skipped: {len(on_gpu)}) ==="


def _turn(item: pytest.Item) -> int:
    """Files that take minutes go first: one that begins last would be waited for with all other cores idle."""
    first = [turn for turn, start in enumerate(LONG_FILES) if item.nodeid.startswith(start)]
    return first[0] if first else len(LONG_FILES)


def _folder(nodeid: str) -> str:
    parts = Path(nodeid.partition("::")[0]).parts
    return "/".join(parts[: min(2, len(parts) - 1)])


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
