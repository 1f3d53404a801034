"""What this node has: cores, memory, GPUs, and how fast one CPU slot multiplies.

GPUs are asked of the driver's own tool, so that the agent needs no CUDA. The CPU's peak is measured once, by the
trainer's self-test in a process of its own, and kept; without it runs on this node show no MFU.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import platform
import shutil
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import ValidationError

from trainwright.contracts.agent_protocol import CpuPeak, Gpu, Inventory
from trainwright.contracts.base import Envelope
from trainwright_agent.files import write_durably
from trainwright_agent.identity import Settings

log = logging.getLogger(__name__)

PEAK_NAME = "cpu-peak.json"
_SELFTEST_SECONDS = 180.0
_QUERY_SECONDS = 30.0


class MeasuredPeak(Envelope):
    """``cpu-peak.json``: what was measured, and on what."""

    cpu_name: str
    cpu_slots: int
    peak: CpuPeak


def take_inventory(data: Path, settings: Settings) -> Inventory:
    """Look at the machine. Measures the CPU's peak where that was not done yet, which takes seconds."""
    name = cpu_name()
    return Inventory(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=gpus(),
        cpu_name=name,
        cpu_slots=settings.cpu_slots,
        cpu_peak=_cpu_peak(data / PEAK_NAME, name, settings),
        agent_version=_agent_version(),
    )


def gpus() -> list[Gpu]:
    """GPUs as the NVIDIA driver lists them; none where it is not installed."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("nvidia-smi does not answer, so this node offers no GPUs: %s", error)
        return []
    return parse_gpus(answer)


def parse_gpus(answer: str) -> list[Gpu]:
    """Read nvidia-smi's table: index, name, MiB of memory. Lines that are none (MIG, errors) are passed over."""
    found = []
    for row in csv.reader(answer.splitlines(), skipinitialspace=True):
        if len(row) == 3 and row[0].strip().isdigit() and row[2].strip().isdigit():
            found.append(Gpu(index=int(row[0]), name=row[1].strip(), memory_bytes=int(row[2]) * 2**20))
    return found


def cpu_name() -> str:
    """The processor as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.machine()


def _cpu_peak(path: Path, name: str, settings: Settings) -> CpuPeak | None:
    if settings.cpu_slots == 0:
        return None
    known = _known_peak(path)
    if known is not None and (known.cpu_name, known.cpu_slots) == (name, settings.cpu_slots):
        return known.peak
    peak = _measure(settings)
    if peak is not None:
        measured = MeasuredPeak(cpu_name=name, cpu_slots=settings.cpu_slots, peak=peak)
        write_durably(path, measured.model_dump_json(indent=1).encode())
    return peak


def _known_peak(path: Path) -> MeasuredPeak | None:
    try:
        return MeasuredPeak.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _measure(settings: Settings) -> CpuPeak | None:
    log.info("measuring the CPU's peak with %d slots busy", settings.cpu_slots)
    module = f"{settings.trainer_module}.main"
    command = [sys.executable, "-P", "-m", module, "selftest", "--slots", str(settings.cpu_slots)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SELFTEST_SECONDS, check=True)
        return CpuPeak.model_validate(json.loads(done.stdout)["cpu"]["flops_per_second"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        said = getattr(error, "stderr", None) or b""
        log.error(
            "THE CPU'S PEAK IS UNKNOWN: the trainer's self-test failed, so CPU runs on this node show no MFU. %s %s",
            error,
            said.decode(errors="replace")[-500:],
        )
        return None


def _agent_version() -> str:
    try:
        return version("trainwright")
    except PackageNotFoundError:
        return ""
