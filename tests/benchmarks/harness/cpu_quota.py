"""A CPU quota of a Linux control group: it makes a rank slow without changing what it computes.

In each period the group's processes run for their share of a core and are then paused. Both versions of control groups work;
without permission to write to them, the row is refused.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.report.results import RefusedError

CONTROL_GROUPS = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS = 100_000
"""The default of Linux and of containers."""


@contextmanager
def cpu_quota(share: float, root: Path = CONTROL_GROUPS) -> Iterator[Path]:
    """A group whose processes together have ``share`` of one core; see ``join``.

    Its processes must have ended when the block ends; then the group is removed.

    Raises:
        RefusedError: no such group can be created here.
    """
    group = _make(share, root)
    try:
        yield group
    finally:
        _remove(group)


def join(group: Path) -> None:
    """Limit this process, with all its threads, to the group's share."""
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _make(share: float, root: Path) -> Path:
    quota = int(share * _PERIOD_MICROSECONDS)
    for parent in _parents(root):
        try:
            group = Path(tempfile.mkdtemp(prefix="trainwright-bench-", dir=parent))
        except OSError:
            continue
        try:
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
                return group
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
                return group
        except OSError:
            pass
        group.rmdir()
    raise RefusedError(
        f"a rank is slowed down by a CPU quota, and none can be set below {root}: run it as root, where control groups can be written"
    )


def _parents(root: Path) -> list[Path]:
    """Possible parents of a new group: this process's own and, in version 2, its parent: there,
    a group with processes cannot have children.
    """
    own = dict(_own_groups())
    first = [root / "cpu" / own["cpu"].lstrip("/")] if "cpu" in own else []
    second = root / own.get("", "/").lstrip("/")
    return [*first, second, second.parent]


def _own_groups() -> Iterator[tuple[str, str]]:
    """Each controller with this process's group; version 2 has a single group with an empty controller."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _remove(group: Path) -> None:
    """Retry, as a killed process may take a moment to disappear."""
    for _ in range(100):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.05)
    group.rmdir()
