"""What this node has: cores, memory, GPUs, engines, and how fast one CPU slot multiplies.

A slot is a GPU as the trainer counts it, so the list is the trainer's: its self-test gives it, in a process of its own
and in the environment that its ranks get. The driver's tool only tells whether it is worth asking, and whether something
is wrong when the trainer sees fewer. The self-test also measures the CPU's peak; that is done once and kept, and
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
from trainwright_agent.files import write_durably
from trainwright_agent.identity import Settings
from trainwright_agent.processes import trainer_environment

log = logging.getLogger(__name__)

PEAK_NAME = "cpu-peak.json"
_SELFTEST_SECONDS = 180.0
_QUERY_SECONDS = 30.0


class MeasuredPeak(Envelope):
    """``cpu-peak.json``: what was measured, and on what."""

    cpu_name: str
    cpu_slots: int
    peak: CpuPeak


class _CpuTest(Envelope):
    flops_per_second: CpuPeak


class _SelfTest(Envelope):
    """What the trainer's self-test prints, as far as it is read here."""

    cpu: _CpuTest
    cuda: list[Gpu]


def take_inventory(data: Path, settings: Settings) -> Inventory:
    """Look at the machine. Runs the trainer's self-test where there are GPUs or the CPU's peak is not known yet."""
    name, driver = cpu_name(), driver_gpus()
    peak = _known_peak(data / PEAK_NAME, name, settings)
    wants_peak = settings.cpu_slots > 0 and peak is None
    tested = _self_test(settings) if driver or wants_peak else None
    if tested is not None and wants_peak:
        peak = tested.cpu.flops_per_second
        _keep_peak(data / PEAK_NAME, MeasuredPeak(cpu_name=name, cpu_slots=settings.cpu_slots, peak=peak))
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
        deepspeed=find_spec("deepspeed") is not None,  # looking imports nothing
        agent_version=_agent_version(),
    )


def driver_gpus() -> list[Gpu]:
    """GPUs as the NVIDIA driver lists them; none where it is not installed."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        log.error("NVIDIA-SMI DOES NOT ANSWER, so this node offers no GPUs: %s", error)
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


def _known_peak(path: Path, name: str, settings: Settings) -> CpuPeak | None:
    """The peak as measured before, on this CPU with these slots, in every dtype."""
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


def _keep_peak(path: Path, measured: MeasuredPeak) -> None:
    try:
        write_durably(path, measured.model_dump_json(indent=1).encode())
    except OSError as error:
        log.error("the CPU's peak is measured again at the next start: it cannot be kept: %s", error)


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
        said = getattr(error, "stderr", None) or b""
        log.error(
            "THE TRAINER'S SELF-TEST FAILED, so this node offers no GPUs, and unless its CPU's peak is known from"
            " before, CPU runs show no MFU. %s %s",
            error,
            said.decode(errors="replace")[-500:],
        )
        return None


def _agent_version() -> str:
    try:
        return version("trainwright")
    except PackageNotFoundError:
        return ""
