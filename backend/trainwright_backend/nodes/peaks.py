"""The peak FLOP/s of a node's slots, relative to which MFU is computed."""

from collections.abc import Collection

from trainwright.contracts.job_spec import Peak
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.planner.peak_flops import vendor_peak
from trainwright_backend.nodes.inventory import inventory_of, threads_per_slot
from trainwright_backend.nodes.tables import Node


def slot_peak(node: Node, device: str, slots: Collection[int], kind: PrecisionKind) -> Peak | None:
    """The peak of a rank in one of the node's ``slots``; None if it is unknown, or if the GPUs are of different models.

    Of a GPU it is the vendor's figure. Of a CPU slot it is what the node measured, with the threads that a rank has if all
    reported slots are allowed.
    """
    if device == Device.CUDA:
        peaks = _gpu_peaks(node, slots, kind)
        return peaks[0] if len(peaks) == 1 else None
    inventory = inventory_of(node)
    rate = None if inventory.cpu_peak is None else inventory.cpu_peak.rate(kind)
    if rate is None:
        return None
    measured_threads = max(1, inventory.cores // max(1, inventory.cpu_slots))
    rate *= threads_per_slot(node, device) / measured_threads
    name = inventory.cpu_name or "one CPU slot"
    return Peak(flops_per_second=rate, dtype=kind.value, device=name, measured=True)


def fastest_peak(node: Node, device: str, slots: Collection[int], kind: PrecisionKind) -> Peak | None:
    """The peak of a rank in the fastest of the node's ``slots``; None if that of one is unknown."""
    if device != Device.CUDA:
        return slot_peak(node, device, slots, kind)
    peaks = _gpu_peaks(node, slots, kind)
    known = [peak for peak in peaks if peak is not None]
    fastest = max(known, key=lambda peak: peak.flops_per_second, default=None)
    return fastest if len(known) == len(peaks) else None


def _gpu_peaks(node: Node, slots: Collection[int], kind: PrecisionKind) -> list[Peak | None]:
    """The peak of each model of GPU in the node's ``slots``; None if it is unknown."""
    names = {gpu.name for gpu in inventory_of(node).gpus if gpu.index in slots}
    return [vendor_peak(name, kind.value) for name in sorted(names)]
