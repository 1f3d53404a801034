"""The node's hardware: cores, memory, GPUs, engines, and the peak FLOP/s of one CPU slot.

A slot is a GPU as the trainer counts it, so the list of GPUs comes from the trainer's self-test, run in its own process
and in the environment of the ranks. The driver's tool only tells whether the self-test is worth running, and whether
the trainer sees fewer GPUs than the driver. The self-test also measures the CPU's peak once; the result is saved, and
without it runs on this node show no MFU.
"""

from __future__ import annotations

import csv
import logging
import os
import platform
import shutil
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from pydantic import ValidationError

from trainwright.contracts.agent_protocol import CpuPeak, Gpu, Inventory
from trainwright.contracts.base import Envelope
from trainwright.durable_files import write_durably
from trainwright_agent.identity import Settings
from trainwright_agent.processes import trainer_environment

log = logging.getLogger(__name__)

PEAK_NAME = "cpu-peak.json"
_SELFTEST_SECONDS = 180.0
_QUERY_SECONDS = 30.0


class MeasuredPeak(Envelope):
    """``cpu-peak.json``: the measured peak, and the hardware it belongs to."""

    cpu_name: str
    cpu_slots: int
    peak: CpuPeak


class _CpuTest(Envelope):
    flops_per_second: CpuPeak


class _SelfTest(Envelope):
    """The fields of the self-test's output that the agent reads."""

    cpu: _CpuTest
    cuda: list[Gpu]


def collect_inventory(data: Path, settings: Settings) -> Inventory:
    """Inspect the machine. Runs the trainer's self-test if there are GPUs or the CPU's peak is not known yet."""
    name, driver = cpu_name(), driver_gpus()
    peak = _known_peak(data / PEAK_NAME, name, settings)
    wants_peak = settings.cpu_slots > 0 and peak is None
    tested = _self_test(settings) if driver or wants_peak else None
    if tested is not None and wants_peak:
        peak = tested.cpu.flops_per_second
        _save_peak(data / PEAK_NAME, MeasuredPeak(cpu_name=name, cpu_slots=settings.cpu_slots, peak=peak))
    gpus = [] if tested is None else tested.cuda
    if len(gpus) < len(driver):
        log.error(
            "THE TRAINER SEES %d OF %d GPUS, so this node offers %d. Its PyTorch may be a build for CPUs, or"
            " CUDA_VISIBLE_DEVICES leaves some out.",
            len(gpus),
            len(driver),
            len(gpus),
        )
    return Inventory(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=gpus,
        cpu_name=name,
        cpu_slots=settings.cpu_slots,
        cpu_peak=peak,
        deepspeed=find_spec("deepspeed") is not None,  # does not import it
        agent_version=_agent_version(),
    )


def driver_gpus() -> list[Gpu]:
    """GPUs that the NVIDIA driver lists; none if it is not installed."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        log.error("NVIDIA-SMI FAILED, so this node offers no GPUs: %s", error)
        return []
    return parse_gpus(answer)


def parse_gpus(answer: str) -> list[Gpu]:
    """Parse nvidia-smi's table: index, name, MiB of memory. Other lines (MIG, errors) are skipped."""
    found = []
    for row in csv.reader(answer.splitlines(), skipinitialspace=True):
        if len(row) == 3 and row[0].strip().isdigit() and row[2].strip().isdigit():
            found.append(Gpu(index=int(row[0]), name=row[1].strip(), memory_bytes=int(row[2]) * 2**20))
    return found


def cpu_name() -> str:
    """The kernel's name for the processor."""
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.machine()


def _known_peak(path: Path, name: str, settings: Settings) -> CpuPeak | None:
    """The saved peak, if it was measured on this CPU with these slots and in every dtype."""
    if settings.cpu_slots == 0:
        return None
    try:
        known = MeasuredPeak.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    complete = known.peak.fp8 is not None
    return (
        known.peak if complete and (known.cpu_name, known.cpu_slots) == (name, settings.cpu_slots) else None
    )


def _save_peak(path: Path, measured: MeasuredPeak) -> None:
    try:
        write_durably(path, measured.model_dump_json(indent=1).encode())
    except OSError as error:
        log.error("cannot save the CPU's peak, so the next start measures it again: %s", error)


def _self_test(settings: Settings) -> _SelfTest | None:
    slots = max(1, settings.cpu_slots)
    log.info("running the trainer's self-test with %d CPU slots busy", slots)
    module = f"{settings.trainer_module}.main"
    command = [sys.executable, "-P", "-m", module, "selftest", "--slots", str(slots)]
    try:
        done = subprocess.run(
            command,
            env=trainer_environment(),
            capture_output=True,
            timeout=_SELFTEST_SECONDS,
            check=True,
        )
        return _SelfTest.model_validate_json(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        stderr = getattr(error, "stderr", None) or b""
        log.error(
            "THE TRAINER'S SELF-TEST FAILED, so this node offers no GPUs, and CPU runs show no MFU unless the CPU's"
            " peak was measured before. %s %s",
            error,
            stderr.decode(errors="replace")[-500:],
        )
        return None


def _agent_version() -> str:
    try:
        return version("trainwright")
    except PackageNotFoundError:
        return ""
