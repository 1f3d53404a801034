"""What a row of the load table is: a context that prepares the platform, and yields what measures it once.

A row gets a running platform whose processes are those of an installation on its database, and a size. Everything that it
measures goes through the platform's HTTP interface. Rows that need many runs insert them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tests.benchmarks.load.size import Goals, Size
from tests.benchmarks.load.table import Value
from tests.benchmarks.platform.server import Deployment, Site, running_site

Measure = Callable[[], list[Value]]
"""Measures the row once."""


@dataclass(frozen=True)
class Load:
    """A running platform, and how much load it gets."""

    site: Site
    size: Size

    @property
    def goals(self) -> Goals:
        return self.size.goals(self.site.kind)


Row = Callable[[Load], AbstractContextManager[Measure]]

OFFERED = 1.02
"""A rate is offered with 2 % more than its goal: what is measured then exceeds the goal if the platform keeps up, and falls below
it if not."""


def deployment_of(database: str, timers: Mapping[str, float]) -> Deployment:
    """The processes of an installation: those of `trainwright-server up` with SQLite, those of docker-compose.yml with PostgreSQL.

    There is no node agent, because rows simulate agents, and no proxy.
    """
    if database == "sqlite":
        return Deployment(apis=1, control_loop=True, brokers=1, timers=timers)
    return Deployment(apis=2, control_loop=True, brokers=2, bucket=True, timers=timers)


@contextmanager
def running_load(database: str, size: Size) -> Iterator[Load]:
    """A platform for a row, for the block."""
    with running_site(database, deployment_of(database, size.timers or {})) as site:
        yield Load(site, size)
