"""Use of a node's hardware, which its agent measures every few seconds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainwright.contracts.base import Report

MAX_SLOTS = 1024
"""Slots of a kind that one node can have."""

MAX_CORES = 2**16
MAX_MEMORY_BYTES = 2**50
MAX_DISK_BYTES = 2**60

RANK_PROCESS_PREFIX = "tw-rank-"
"""The name of a rank's process, before its number. An agent distinguishes ranks by it, and people do in `top`."""

SlotIndex = Annotated[int, Field(ge=0, lt=MAX_SLOTS)]
MemoryBytes = Annotated[int, Field(ge=0, le=MAX_MEMORY_BYTES)]
DiskBytes = Annotated[int, Field(ge=0, le=MAX_DISK_BYTES)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Cores = Annotated[float, Field(ge=0, le=MAX_CORES, allow_inf_nan=False)]
Watts = Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]
Celsius = Annotated[float, Field(ge=-273, le=1_000, allow_inf_nan=False)]


class GpuUse(Report):
    """Use of one GPU. What its driver does not report is empty."""

    index: SlotIndex
    utilization: Fraction | None = None
    """Fraction of the time in which it computed anything."""

    memory_bytes: MemoryBytes | None = None
    power_watts: Watts | None = None
    temperature_celsius: Celsius | None = None


class HardwareUse(Report):
    """Use of a node's hardware, by everything that runs on it."""

    cpu_utilization: Fraction
    """Use of all cores."""

    memory_bytes: MemoryBytes
    memory_total_bytes: MemoryBytes
    disk_bytes: DiskBytes
    """Space in use on the disk with the agent's data folder."""

    disk_total_bytes: DiskBytes
    gpus: list[GpuUse] = Field(default=[], max_length=MAX_SLOTS)


class RankUse(Report):
    """Use of the CPU and its memory by the processes of one rank."""

    rank: SlotIndex
    cpu_cores: Cores
    """CPU seconds per second."""

    memory_bytes: MemoryBytes
    """Resident memory. Pages that several processes share are counted for each."""


class RunHardwareUse(HardwareUse):
    """Use of a node's hardware while a run trains on it. The GPUs are those of the run."""

    ranks: list[RankUse] = Field(default=[], max_length=MAX_SLOTS)
