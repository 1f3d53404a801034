"""How large a load is: the goals of the load table for each database, and a toy size that only shows that the rows run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Goals:
    """The load table's column of one database."""

    requests_per_second: float
    """Of the API mix."""

    agents: int
    active_runs: int
    submits_per_second: float
    claim_seconds: float
    drain_per_second: float | None
    points_per_second: float
    log_megabytes_per_second: float
    streams: int


SQLITE = Goals(
    requests_per_second=150,
    agents=100,
    active_runs=500,
    submits_per_second=30,
    claim_seconds=1.5,
    drain_per_second=None,
    points_per_second=10_000,
    log_megabytes_per_second=2,
    streams=200,
)
POSTGRESQL = Goals(
    requests_per_second=200,
    agents=1_000,
    active_runs=2_000,
    submits_per_second=100,
    claim_seconds=1.0,
    drain_per_second=40,
    points_per_second=10_000,
    log_megabytes_per_second=5,
    streams=500,
)
TOY_GOALS = Goals(
    requests_per_second=10,
    agents=3,
    active_runs=6,
    submits_per_second=4,
    claim_seconds=1.5,
    drain_per_second=None,
    points_per_second=1_000,
    log_megabytes_per_second=0.1,
    streams=4,
)
GOALS: Mapping[str, Goals] = {"sqlite": SQLITE, "postgresql": POSTGRESQL}

P95_MS = 100.0
"""Of the API mix, a chart and a search."""
TAIL_SECONDS = 2.0
UPLOAD_MEGABYTES_PER_SECOND = 150.0
UPLOAD_GROWTH_MB = 64.0
MEMORY_MB_PER_MINUTE = 1.0


@dataclass(frozen=True)
class Size:
    """Durations and amounts."""

    toy: bool = False
    seconds: float = 60.0
    """Of one measurement."""

    times: int = 3
    """Measurements of each row except the mix and the soak, which are measured once."""

    mix_minutes: float = 10.0
    soak_minutes: float = 10.0
    stored_runs: int = 10_000
    """Runs that the database has under the API mix."""

    queued_runs: int = 10_000
    charted_points: int = 1_000_000
    searched_runs: int = 100_000
    read_rounds: int = 40
    upload_mib: int = 1_024
    burst_seconds: float = 10.0
    burst_connections: int = 400
    """More than the API lets run and wait, so that it has to refuse some."""

    timers: Mapping[str, float] | None = None
    """Of leases and heartbeats."""

    def goals(self, database: str) -> Goals:
        return TOY_GOALS if self.toy else GOALS[database]


HEARTBEATS: Mapping[str, float] = {
    "heartbeat_seconds": 10.0,
    "renewal_seconds": 10.0,
    "lease_seconds": 30.0,
    "margin_seconds": 9.0,
    "grace_seconds": 5.0,
}
"""The default intervals. Leases last a quarter of their default, so that one that is not renewed expires within a measurement."""

FULL = Size(timers=HEARTBEATS)
TOY = Size(
    toy=True,
    seconds=2.0,
    times=1,
    mix_minutes=2 / 60,
    soak_minutes=4 / 60,
    stored_runs=1_000,
    queued_runs=100,
    charted_points=10_000,
    searched_runs=1_000,
    read_rounds=3,
    upload_mib=4,
    burst_seconds=1.0,
    burst_connections=40,
    timers={
        "heartbeat_seconds": 1.0,
        "renewal_seconds": 1.0,
        "lease_seconds": 30.0,
        "margin_seconds": 9.0,
        "grace_seconds": 5.0,
        "sweep_seconds": 0.5,
    },
)
"""Leases do not expire, however busy the machine is."""


def with_changes(
    size: Size,
    seconds: float | None = None,
    times: int | None = None,
    minutes: float | None = None,
) -> Size:
    """``size`` with other durations where they are given. ``minutes`` is that of the mix and of the soak."""
    changed = replace(size, seconds=seconds or size.seconds, times=times or size.times)
    return changed if minutes is None else replace(changed, mix_minutes=minutes, soak_minutes=minutes)
