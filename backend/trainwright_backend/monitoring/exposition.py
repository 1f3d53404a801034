"""What `GET /metrics` shows, in Prometheus's text format: this process's counts and the state of the platform.

The state is read from the database at the scrape, at most every `MAX_AGE_SECONDS` by each process. While the database is
unavailable, only the process's own counts are shown, with ``trainwright_database_up 0``.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.pool import QueuePool

from trainwright.contracts.run_state import RunState
from trainwright_backend.core.counters import REGISTRY
from trainwright_backend.core.db import POOL_SIZE, Database
from trainwright_backend.core.errors import Busy
from trainwright_backend.core.settings import Settings
from trainwright_backend.monitoring.platform_state import (
    NodeReading,
    PlatformState,
    read_platform_state,
)
from trainwright_backend.scheduling.waiting_reasons import WaitingClass
from trainwright_backend.teams.slot_quota import DEVICES

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
MAX_AGE_SECONDS = 5.0
NODE_STATES = ("online", "drained", "quarantined", "offline")

Sample = tuple[tuple[str, ...], float | None]
"""Values of the labels, and the number; None if it is not known."""


class Exposition(Collector):
    """The metrics of one API process.

    Args:
        silent_brokers: names the brokers that do not respond.
        worker_missing_seconds: how long dataset jobs have been due without a worker; None where no control loop watches.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        silent_brokers: Callable[[], list[str]],
        worker_missing_seconds: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database, self._settings = database, settings
        self._silent_brokers, self._worker_missing_seconds = silent_brokers, worker_missing_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._state: PlatformState | None = None

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics, as `generate_latest` wants them."""
        yield from REGISTRY.collect()
        yield from self._of_process()
        state = self._current_state()
        yield _gauge(
            "database_up", "Whether the state could be read from the database.", float(state is not None)
        )
        if state is not None:
            yield from of_platform(state)

    def _current_state(self) -> PlatformState | None:
        """The state, at most `MAX_AGE_SECONDS` old; None while the database is unavailable."""
        with self._lock:
            if self._read_at is None or self._clock() - self._read_at > MAX_AGE_SECONDS:
                try:
                    with self._database.read() as session:
                        self._state = read_platform_state(session, self._settings.timers)
                except Busy:
                    self._state = None
                self._read_at = self._clock()
            return self._state

    def _of_process(self) -> Iterator[Metric]:
        pool = self._database.engine.pool
        if isinstance(pool, QueuePool):
            yield _gauges(
                "database_connections",
                f"Connections of this process to the database, of at most {2 * POOL_SIZE}.",
                ("state",),
                [(("in_use",), pool.checkedout()), (("idle",), pool.checkedin())],
            )
        silent = len(self._silent_brokers())
        yield _gauge("silent_brokers", "Configured brokers that do not respond.", silent)
        if self._worker_missing_seconds is not None:
            seconds = self._worker_missing_seconds()
            yield _gauge(
                "worker_missing_seconds", "How long dataset jobs have been due without a worker.", seconds
            )
        disks = list(_disks(self._settings))
        for name, meaning, index in (("size", "Size", 0), ("free", "Free space", 1)):
            samples = [((folder,), sizes[index]) for folder, sizes in disks]
            yield _gauges(
                f"disk_{name}_bytes",
                f"{meaning} of this machine's disk with the folder.",
                ("folder",),
                samples,
            )


def state_text(state: PlatformState) -> str:
    """The platform's part of the exposition."""
    return generate_latest(_StateCollector(state)).decode()


@dataclass
class _StateCollector(Collector):
    state: PlatformState

    def collect(self) -> Iterator[Metric]:
        return of_platform(self.state)


def of_platform(state: PlatformState) -> Iterator[Metric]:
    """The metrics of the platform's state. Those with few values of labels are there even if they are 0."""
    yield _gauges("runs", "Runs by state.", ("state",), [((name,), state.runs[name]) for name in RunState])
    waiting = {(RunState.QUEUED.value, device, why.value): 0 for device in DEVICES for why in WaitingClass}
    yield _gauges(
        "queue_runs",
        "Waiting runs by what they wait for: data, slots, no_node, limit, turn; or the end code before a retry.",
        ("state", "device", "reason"),
        (waiting | dict(state.queue)).items(),
    )
    yield from _of_training(state)
    kinds = [(device, use) for device in DEVICES for use in ("used", "free", "unavailable")]
    yield _gauges(
        "slots", "Slots of all nodes.", ("device", "state"), [(key, state.slots[key]) for key in kinds]
    )
    counts = [((name,), sum(node.state == name for node in state.nodes)) for name in NODE_STATES]
    yield _gauges("nodes", "Nodes by state.", ("state",), counts)
    yield from _of_nodes(state.nodes)
    yield _gauges(
        "dataset_jobs",
        "Data with a job that is due, and jobs that workers run.",
        ("kind", "state"),
        state.jobs.items(),
    )
    ages = [
        ((kind,), state.oldest_due_seconds.get(kind, 0.0))
        for kind in sorted({kind for kind, _ in state.jobs})
    ]
    yield _gauges("dataset_job_oldest_seconds", "Age of the oldest data with a due job.", ("kind",), ages)
    stored = [((kind,), size) for kind, size in state.stored_bytes.items()]
    yield _gauges("stored_bytes", "Bytes that the database counts in the object store.", ("kind",), stored)
    yield _gauge(
        "webhook_messages_due", "Messages of webhooks that are not delivered yet.", state.due_webhook_messages
    )
    newest = state.newest_backup
    yield _gauge(
        "backup_state_timestamp_seconds",
        "Unix time whose state the newest complete backup has; 0 if there is none.",
        0.0 if newest is None else newest.timestamp(),
    )


def _of_training(state: PlatformState) -> Iterator[Metric]:
    """Metrics of training, by team and not by run: runs come and go, and each would be a series for ever."""
    teams = state.teams.items()
    yield _gauges(
        "team_running_runs", "Runs that train.", ("team",), [((slug,), team.runs) for slug, team in teams]
    )
    yield _gauges(
        "team_tokens_per_second",
        "Tokens per second of all running runs of a team.",
        ("team",),
        [((slug,), team.tokens_per_second) for slug, team in teams],
    )
    yield _gauges(
        "team_mfu",
        "Mean MFU (0 to 1) of the running runs of a team, where it is known.",
        ("team",),
        [((slug,), team.mfu) for slug, team in teams],
    )


def _of_nodes(nodes: list[NodeReading]) -> Iterator[Metric]:
    ages = [((node.name,), node.heartbeat_age_seconds) for node in nodes]
    yield _gauges("node_heartbeat_age_seconds", "Time since a node's last heartbeat.", ("node",), ages)
    online = [((node.name,), float(node.state != "offline")) for node in nodes]
    yield _gauges("node_online", "Whether a node's heartbeats arrive.", ("node",), online)
    used = [(node.name, node.hardware) for node in nodes if node.hardware is not None]
    of_nodes: dict[tuple[str, str], list[Sample]] = {
        ("cpu_utilization", "Use of all cores of a node (0 to 1)."): [
            ((name,), use.cpu_utilization) for name, use in used
        ],
        ("memory_bytes", "Memory of a node in use."): [((name,), use.memory_bytes) for name, use in used],
        ("memory_total_bytes", "Memory of a node."): [
            ((name,), use.memory_total_bytes) for name, use in used
        ],
        ("disk_bytes", "Used space on the disk with the agent's folder."): [
            ((name,), use.disk_bytes) for name, use in used
        ],
        ("disk_total_bytes", "Size of the disk with the agent's folder."): [
            ((name,), use.disk_total_bytes) for name, use in used
        ],
    }
    for (name, meaning), samples in of_nodes.items():
        yield _gauges(f"node_{name}", meaning, ("node",), samples)
    gpus = [((name, str(gpu.index)), gpu) for name, use in used for gpu in use.gpus]
    of_gpus: dict[tuple[str, str], list[Sample]] = {
        ("utilization", "Fraction of the time in which a GPU computed anything."): [
            (key, gpu.utilization) for key, gpu in gpus
        ],
        ("memory_bytes", "Memory of a GPU in use."): [(key, gpu.memory_bytes) for key, gpu in gpus],
        ("power_watts", "Power of a GPU."): [(key, gpu.power_watts) for key, gpu in gpus],
        ("temperature_celsius", "Temperature of a GPU."): [
            (key, gpu.temperature_celsius) for key, gpu in gpus
        ],
    }
    for (name, meaning), samples in of_gpus.items():
        yield _gauges(f"gpu_{name}", meaning, ("node", "gpu"), samples)
    totals = [
        ((node.name, str(gpu.index)), gpu.memory_bytes) for node in nodes for gpu in node.inventory.gpus
    ]
    yield _gauges("gpu_memory_total_bytes", "Memory of a GPU.", ("node", "gpu"), totals)


def _disks(settings: Settings) -> Iterator[tuple[str, tuple[int, int]]]:
    """Name, size and free bytes of the disks with this process's folders, as far as they exist."""
    folders: dict[str, Path] = {"data": settings.data_dir}
    if settings.object_store_url is None:
        folders["objects"] = settings.resolved_object_store_dir
    for name, folder in folders.items():
        if folder.is_dir():
            size, _, free = shutil.disk_usage(folder)
            yield name, (size, free)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"trainwright_{name}", meaning, value=value)


def _gauges(name: str, meaning: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    family = GaugeMetricFamily(f"trainwright_{name}", meaning, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, number)
    return family
