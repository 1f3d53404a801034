"""The load of each node over the last day: one measurement a minute, from its heartbeats."""

from collections import defaultdict
from datetime import datetime, timedelta
from statistics import fmean
from uuid import UUID

from sqlalchemy import delete, select

from trainwright.contracts.api.nodes import LoadSeries
from trainwright.contracts.api.nodes import NodeLoad as ShownLoad
from trainwright.contracts.hardware import GpuUse, HardwareUse
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.ids import parse_id, unknown
from trainwright_backend.metrics.hardware import node_values
from trainwright_backend.nodes.tables import Node, NodeLoad

RETENTION = timedelta(hours=24)
FINE_HOURS = 4
"""Longer periods are shown in intervals of five minutes instead of one."""
MINUTE, COARSE = 60, 300
"""Seconds."""


def record_load(session: Write, node: Node, use: HardwareUse) -> None:
    """Store the first measurement of each minute, and delete those that are older than a day."""
    minute = now().replace(second=0, microsecond=0)
    if node.load_minute is not None and node.load_minute >= minute:
        return
    node.load_minute = minute
    session.add(
        NodeLoad(
            node_id=node.id,
            minute=minute,
            cpu_utilization=use.cpu_utilization,
            memory_bytes=use.memory_bytes,
            disk_bytes=use.disk_bytes,
            gpus=[_packed(gpu) for gpu in use.gpus],
        )
    )
    session.execute(delete(NodeLoad).where(NodeLoad.node_id == node.id, NodeLoad.minute < minute - RETENTION))


def node_load(session: Read, node_id: str, hours: int) -> ShownLoad:
    """The load of a node over the last hours: minute by minute, or as means of five minutes.

    Raises:
        NotFound: there is no such node.
    """
    node = session.get(Node, parse_id("node", node_id))
    if node is None:
        raise unknown("node", node_id)
    interval = MINUTE if hours <= FINE_HOURS else COARSE
    start = _rounded_down(now() - timedelta(hours=hours), interval)
    rows = _rows(session, node.id, start)
    if not rows:
        return ShownLoad(start=start, interval_seconds=interval, series=[])
    start = _rounded_down(rows[0].minute, interval)
    measured: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        index = int((row.minute - start).total_seconds()) // interval
        for name, value in node_values(_unpacked(row)):
            measured[name][index].append(value)
    indices = range(int((now() - start).total_seconds()) // interval + 1)
    series = [
        LoadSeries(name=name, values=[fmean(found[index]) if index in found else None for index in indices])
        for name, found in measured.items()
    ]
    return ShownLoad(start=start, interval_seconds=interval, series=series)


def _packed(gpu: GpuUse) -> list[float | None]:
    """What its driver reports, without names: a node may have many GPUs, and a row a minute."""
    values = (gpu.index, gpu.utilization, gpu.memory_bytes, gpu.power_watts, gpu.temperature_celsius)
    return [None if value is None else round(value, 3) for value in values]


def _unpacked(row: NodeLoad) -> HardwareUse:
    gpus = [
        GpuUse(
            index=index,
            utilization=utilization,
            memory_bytes=memory_bytes,
            power_watts=watts,
            temperature_celsius=celsius,
        )
        for index, utilization, memory_bytes, watts, celsius in row.gpus
    ]
    return HardwareUse(
        cpu_utilization=row.cpu_utilization,
        memory_bytes=row.memory_bytes,
        memory_total_bytes=row.memory_bytes,  # totals are not stored, and have no series
        disk_bytes=row.disk_bytes,
        disk_total_bytes=row.disk_bytes,
        gpus=gpus,
    )


def _rows(session: Read, node_id: UUID, start: datetime) -> list[NodeLoad]:
    rows = select(NodeLoad).where(NodeLoad.node_id == node_id, NodeLoad.minute >= start)
    return list(session.scalars(rows.order_by(NodeLoad.minute)))


def _rounded_down(time: datetime, interval: int) -> datetime:
    seconds = int(time.timestamp())
    return datetime.fromtimestamp(seconds - seconds % interval, time.tzinfo)
