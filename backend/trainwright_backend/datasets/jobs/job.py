"""A job of a dataset worker, and the exception that ends a cancelled one."""

from dataclasses import dataclass

from trainwright_backend.datasets.jobs.leases import Lease


@dataclass(frozen=True)
class Job:
    """Work that a worker has leased, with everything it needs to do it without the database."""

    lease: Lease
    folder: str
    """Folder of the objects that the job writes."""


class JobCancelledError(Exception):
    """The job was cancelled, its row was deleted, or another worker has its lease."""
