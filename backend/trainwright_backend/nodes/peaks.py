"""The peak FLOP/s of a node's slots, relative to which MFU is computed."""

from collections.abc import Collection

from trainwright.contracts.job_spec import Peak
from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.planner.peak_flops import vendor_peak
from trainwright_backend.nodes.inventory import inventory_of, threads_per_slot
from trainwright_backend.nodes.tables import Node


def slot_peak(node: Node, device: str, slots: Collection[int], kind: PrecisionKind) -> Peak | None:
    """The peak of a rank in one of the node's ``slots``; None if it is unknown, or if they are unlike GPUs.

    Of a GPU it is the vendor's figure. Of a CPU slot it is what the node measured, with the threads that a rank has if all
    reported slots are allowed.
    """
    inventory = inventory_of(node)
    if device == Device.CUDA:
        names = {gpu.name for gpu in inventory.gpus if gpu.index in slots}
        return vendor_peak(names.pop(), kind.value) if len(names) == 1 else None
    rate = None if inventory.cpu_peak is None else inventory.cpu_peak.rate(kind)
    if rate is None:
        return None
    measured_threads = max(1, inventory.cores // max(1, inventory.cpu_slots))
    rate *= threads_per_slot(node, device) / measured_threads
    name = inventory.cpu_name or "one CPU slot"
    return Peak(flops_per_second=rate, dtype=kind.value, device=name, measured=True)
