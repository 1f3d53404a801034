"""Series of the hardware that a run trains on, from what its agent measured.

A measurement is stored at the last step of the batch that brings it, so that it is drawn, down-sampled and rewound like
every other series.
"""

from collections.abc import Callable, Iterator
from statistics import fmean

from trainwright.contracts.agent_protocol import Batch, MetricBlock
from trainwright.contracts.hardware import GpuUse, HardwareUse, RunHardwareUse


def hardware_blocks(batch: Batch) -> list[MetricBlock]:
    """The points of a batch's measurement; none without one, or if the batch has no step."""
    steps = [block.steps[-1] for block in batch.metrics if block.steps]
    if batch.hardware is None or not steps:
        return []
    series = {name: [float(value)] for name, value in _values(batch.hardware)}
    return [MetricBlock(steps=[max(steps)], series=series)]


def node_values(use: HardwareUse) -> Iterator[tuple[str, float]]:
    """The value of each series of a node and its GPUs, by name."""
    yield "cpu_utilization", use.cpu_utilization
    yield "node_memory_bytes", use.memory_bytes
    yield "node_disk_bytes", use.disk_bytes
    yield from _gpu_values(use, "gpu_utilization", "mean", fmean, lambda gpu: gpu.utilization)
    yield from _gpu_values(use, "gpu_memory_bytes", "max", max, lambda gpu: gpu.memory_bytes)
    yield from _gpu_values(use, "gpu_power_watts", "total", sum, lambda gpu: gpu.power_watts)
    yield from _gpu_values(use, "gpu_temperature_celsius", "max", max, lambda gpu: gpu.temperature_celsius)


def _values(use: RunHardwareUse) -> Iterator[tuple[str, float]]:
    yield from node_values(use)
    if use.ranks:
        yield "run_cpu_cores", sum(rank.cpu_cores for rank in use.ranks)
        yield "run_memory_bytes", sum(rank.memory_bytes for rank in use.ranks)
    for rank in use.ranks:
        yield f"rank_cpu_cores/{rank.rank}", rank.cpu_cores
        yield f"rank_memory_bytes/{rank.rank}", rank.memory_bytes


def _gpu_values(
    use: HardwareUse,
    name: str,
    prefix: str,
    summary: Callable[[list[float]], float],
    value_of: Callable[[GpuUse], float | None],
) -> Iterator[tuple[str, float]]:
    """The value of each GPU that reports one, and their summary."""
    known = {gpu.index: value for gpu in use.gpus if (value := value_of(gpu)) is not None}
    if known:
        yield f"{prefix}_{name}", summary(list(known.values()))
    for index, value in known.items():
        yield f"{name}/{index}", value
