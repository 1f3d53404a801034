"""A share of a core's time, held by Linux: how a rank is made slow without touching what it computes.

In each period a group of processes computes for its share and then stands still. Of control groups both versions serve; who
may not write to them is told so.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.results import RefusedError

CONTROL_GROUPS = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS = 100_000
"""Linux's own, and that of containers."""


@contextmanager
def cpu_quota(share: float, root: Path = CONTROL_GROUPS) -> Iterator[Path]:
    """A group whose processes have ``share`` of one core between them; see ``join``.

    It is removed at the end, when its processes must have ended.

    Raises:
        RefusedError: no such group can be made here.
    """
    group = _make(share, root)
    try:
        yield group
    finally:
        _remove(group)


def join(group: Path) -> None:
    """Let this process, with all its threads, have no more than the group's share."""
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
    """Groups that may get one more within: this process's own, and in version 2, where that holds processes, the one above."""
    own = dict(_own_groups())
    first = [root / "cpu" / own["cpu"].lstrip("/")] if "cpu" in own else []
    second = root / own.get("", "/").lstrip("/")
    return [*first, second, second.parent]


def _own_groups() -> Iterator[tuple[str, str]]:
    """Each controller with the group that this process is in; version 2 has them all under no name."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _remove(group: Path) -> None:
    """A process that was killed may take a moment to leave."""
    for _ in range(100):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.05)
    group.rmdir()
