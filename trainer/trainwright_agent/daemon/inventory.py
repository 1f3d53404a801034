"""The node's hardware: cores, memory, GPUs, engines, and the peak FLOP/s of one CPU slot.

A slot is a GPU as the trainer counts it, so the list of GPUs comes from the trainer's self-test, run in its own process
and in the environment of the ranks. The driver's tool only tells whether the self-test is worth running, and whether
the trainer sees fewer GPUs than the driver. The self-test also measures the CPU's peak (`cpu_peak`); without it runs on
this node show no MFU.
"""

from __future__ import annotations

import csv
import logging
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from trainwright.contracts.agent_protocol import CpuPeak, Gpu, Inventory, SelfTestCheck
from trainwright.contracts.base import Envelope
from trainwright.contracts.job_spec import Peak
from trainwright_agent.daemon.cpu_peak import (
    METHOD,
    PeakRecord,
    is_machine_calm,
    read_record,
    save_record,
)
from trainwright_agent.identity import Settings
from trainwright_agent.network_addresses import address_towards, interface_of
from trainwright_agent.processes import trainer_environment

log = logging.getLogger(__name__)

_SELFTEST_SECONDS = 180.0
_POLL_SECONDS = 0.2
"""Time between two checks whether a running self-test is still needed."""
_QUERY_SECONDS = 30.0


class _CpuTest(Envelope):
    flops_per_second: CpuPeak


class DeviceMeasurement(Envelope):
    """The fields of the self-test's output that the agent reads."""

    cpu: _CpuTest
    cuda: list[Gpu]
    health: list[SelfTestCheck] = []
    """Empty unless it was asked for."""


def collect_inventory(data: Path, settings: Settings, api_url: str) -> Inventory:
    """Inspect the machine. Runs the trainer's self-test if there are GPUs or the CPU's peak is not known yet.

    Args:
        data: the agent's data folder.
        settings: the operator's settings.
        api_url: the server; other nodes reach this one by the address on its route there, unless the settings name one.
    """
    driver, hardware = driver_gpus(), _hardware(settings)
    record = read_record(data, hardware)
    wants_peak = settings.cpu_slots > 0 and record is None
    was_calm = is_machine_calm()
    tested = measure_devices(settings) if driver or wants_peak else None
    if tested is not None and wants_peak:
        record = hardware.measured(tested.cpu.flops_per_second, was_calm)
        save_record(data, record)
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
        cpu_name=hardware.cpu_name,
        cpu_slots=settings.cpu_slots,
        cpu_peak=None if record is None or settings.cpu_slots == 0 else record.known,
        deepspeed=find_spec("deepspeed") is not None,  # does not import it
        agent_version=_agent_version(),
        peer_address=_peer_address(settings, api_url),
        location=settings.location,
        link_tests=True,
    )


def with_present_address(inventory: Inventory, settings: Settings, api_url: str) -> Inventory:
    """``inventory`` with this machine's address on the present route to the server. The network may have come up or changed
    since the inventory was collected."""
    if settings.peer_address is not None:
        return inventory
    return inventory.model_copy(update={"peer_address": _peer_address(settings, api_url)})


def _peer_address(settings: Settings, api_url: str) -> str | None:
    """Where other nodes reach this one; None if no network interface has the address."""
    address = settings.peer_address or address_towards(api_url)
    if address is not None and interface_of(address) is None:
        log.error("NO NETWORK INTERFACE HAS THE ADDRESS %s, so no run on several nodes comes here.", address)
        return None
    return address


def wants_calm_peak(data: Path, settings: Settings) -> bool:
    """Whether the CPU's peak should be measured again once the machine is idle."""
    record = read_record(data, _hardware(settings))
    return settings.cpu_slots > 0 and record is not None and not record.is_calm


def measure_peak_again(data: Path, settings: Settings) -> CpuPeak | None:
    """Measure the CPU's peak on an idle machine; returns the new record, None if the self-test failed."""
    tested = measure_devices(settings)
    if tested is None:
        return None
    record = read_record(data, _hardware(settings)) or _hardware(settings)
    record = record.measured(tested.cpu.flops_per_second, is_calm=True)
    save_record(data, record)
    return record.known


def note_beaten_peak(data: Path, settings: Settings, by: Peak) -> CpuPeak:
    """Record that a run computed ``by`` FLOP/s per slot, more than the peak; returns the new record."""
    log.warning("A run was faster than the CPU's measured peak, which is measured again once nothing runs.")
    record = (read_record(data, _hardware(settings)) or _hardware(settings)).beaten(by)
    save_record(data, record)
    return record.known


def driver_gpus() -> list[Gpu]:
    """GPUs that the NVIDIA driver lists; none if it is not installed."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        response = subprocess.run(
            query, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        log.error("NVIDIA-SMI FAILED, so this node offers no GPUs: %s", error)
        return []
    return parse_gpus(response)


def parse_gpus(response: str) -> list[Gpu]:
    """Parse nvidia-smi's table: index, name, MiB of memory. Other lines (MIG, errors) are skipped."""
    found = []
    for row in csv.reader(response.splitlines(), skipinitialspace=True):
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


def _hardware(settings: Settings) -> PeakRecord:
    """A record of this machine's CPU, whose peak is not known yet."""
    cores = len(os.sched_getaffinity(0))
    return PeakRecord(cpu_name=cpu_name(), cpu_slots=settings.cpu_slots, cores=cores, method=METHOD)


def measure_devices(
    settings: Settings, *options: str, cancelled: threading.Event | None = None
) -> DeviceMeasurement | None:
    """Run the trainer's self-test; None if it fails, or is killed because it was cancelled."""
    log.info("running the trainer's self-test with %d CPU slots busy", settings.cpu_slots)
    module = f"{settings.trainer_module}.main"
    command = [sys.executable, "-P", "-m", module, "selftest", "--slots", str(settings.cpu_slots), *options]
    try:
        return DeviceMeasurement.model_validate_json(_output_of(command, cancelled or threading.Event()))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        stderr = getattr(error, "stderr", None) or b""
        log.error(
            "THE TRAINER'S SELF-TEST FAILED, so this node offers no GPUs, and CPU runs show no MFU unless the CPU's"
            " peak was measured before. %s %s",
            error,
            stderr.decode(errors="replace")[-500:],
        )
        return None


def _output_of(command: Sequence[str], cancelled: threading.Event) -> bytes:
    """The standard output of a program that ends well. It gets a process group, which is killed if it does not end in time.

    Raises:
        SubprocessError: it failed, took too long, or was cancelled.
    """
    until = time.monotonic() + _SELFTEST_SECONDS
    with subprocess.Popen(
        command,
        env=trainer_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as process:
        while True:
            try:
                output, errors = process.communicate(timeout=_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired as expired:
                if cancelled.is_set() or time.monotonic() > until:
                    os.killpg(process.pid, signal.SIGKILL)
                    if cancelled.is_set():
                        raise subprocess.SubprocessError("it was cancelled") from expired
                    raise
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    return output


def _agent_version() -> str:
    try:
        return version("trainwright")
    except PackageNotFoundError:
        return ""
