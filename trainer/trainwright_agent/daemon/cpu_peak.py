"""The known peak of the node's CPU: ``cpu-peak.json`` in the data folder.

The trainer's self-test measures the peak, and this module decides which measurement to use. Of several measurements of
the same hardware the best counts, because disturbances only make a measurement slower. A measurement on a busy machine
is used until there is one on an idle machine. If a run is faster than the peak, the peak counts as unknown, and is
measured again when the machine is idle.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pydantic import ValidationError

from trainwright.contracts.agent_protocol import CpuPeak
from trainwright.contracts.base import Envelope
from trainwright.contracts.job_spec import Peak
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.durable_files import write_durably

log = logging.getLogger(__name__)

PEAK_NAME = "cpu-peak.json"
METHOD = 2
"""2: one matmul per thread, in CPU time. 1 measured in wall time, which depends on what else runs."""
_CALM_LOAD_PER_CORE = 0.25
_UNKNOWN = CpuPeak(fp32=0.0, bf16=0.0, fp8=0.0)


class PeakRecord(Envelope):
    """``cpu-peak.json``: the measured peak, and the hardware it belongs to."""

    cpu_name: str
    cpu_slots: int
    cores: int = 0
    method: int = 1
    peak: CpuPeak = _UNKNOWN
    is_calm: bool = False
    """Whether it was measured while nothing else ran, and no run has been faster since."""

    reached: CpuPeak = _UNKNOWN
    """FLOP/s of one slot that a run has shown."""

    @property
    def known(self) -> CpuPeak:
        """The peak with 0 for each dtype in which it is not plausible, or a run has been faster."""
        known = {
            kind.value: rate
            for kind in (PrecisionKind.FP32, PrecisionKind.BF16, PrecisionKind.FP8)
            if (rate := self.peak.rate(kind)) is not None and rate >= (getattr(self.reached, kind) or 0.0)
        }
        return _UNKNOWN.model_copy(update=known)

    def measured(self, again: CpuPeak, is_calm: bool) -> PeakRecord:
        """The record with another measurement."""
        return self.model_copy(update={"peak": _best(self.peak, again), "is_calm": is_calm})

    def beaten(self, by: Peak) -> PeakRecord:
        """The record after a run computed ``by`` FLOP/s; FP8 matmuls count as bfloat16's."""
        rate = by.flops_per_second
        fp32 = by.dtype == PrecisionKind.FP32
        reached = CpuPeak(fp32=rate if fp32 else 0.0, bf16=0.0 if fp32 else rate, fp8=0.0 if fp32 else rate)
        return self.model_copy(update={"reached": _best(self.reached, reached), "is_calm": False})


def read_record(data: Path, hardware: PeakRecord) -> PeakRecord | None:
    """The saved record, if it was measured on this hardware, in the current way."""
    try:
        record = PeakRecord.model_validate_json((data / PEAK_NAME).read_bytes())
    except (OSError, ValidationError):
        return None
    return record if _hardware(record) == _hardware(hardware) else None


def save_record(data: Path, record: PeakRecord) -> None:
    try:
        write_durably(data / PEAK_NAME, record.model_dump_json(indent=1).encode())
    except OSError as error:
        log.error("cannot save the CPU's peak, so the next start measures it again: %s", error)


def is_machine_calm() -> bool:
    """Whether little else runs, by the load of the last minute."""
    return os.getloadavg()[0] <= _CALM_LOAD_PER_CORE * (os.cpu_count() or 1)


def _hardware(record: PeakRecord) -> tuple[str, int, int, int]:
    return record.cpu_name, record.cpu_slots, record.cores, record.method


def _best(one: CpuPeak, other: CpuPeak) -> CpuPeak:
    return CpuPeak(
        fp32=max(one.fp32, other.fp32),
        bf16=max(one.bf16, other.bf16),
        fp8=max(one.fp8 or 0.0, other.fp8 or 0.0),
    )
