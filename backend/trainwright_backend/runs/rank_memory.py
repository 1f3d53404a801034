"""The memory that the joined nodes have for a rank, and the refusal of a run that needs more, by the planner's estimate."""

from collections.abc import Hashable, Sequence

from sqlalchemy import select

from trainwright.contracts.parallelism_spec import Device
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.memory_savings import find_saving
from trainwright.planner.plan import Slot, memory_needs
from trainwright.sizes import format_bytes, format_distinct
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid
from trainwright_backend.runs.gpu_choice import gpu_choice
from trainwright_backend.runs.joined_nodes import (
    JoinedNode,
    bytes_per_rank,
    can_run,
    gpu_names,
    has_precision,
    needs_equal_gpus,
    nodes_for,
)
from trainwright_backend.runs.tables import NodeSize


def check_memory(session: Read, spec: RunSpec) -> None:
    """Refuse a run with a rank that needs more memory than any of the nodes that could run it has for it.

    Args:
        spec: with its device, its data and its precision resolved.

    Raises:
        Invalid: at the field whose change would mend it.
    """
    cuda = spec.resources.device is Device.CUDA
    available, needed = _most_available(session, spec), memory_needs(spec, cuda).rank_bytes
    if available is None or needed <= available.bytes:
        return
    which = (
        f"the largest node, {available.node},"
        if spec.resources.nodes == 1
        else f"{available.node}, which the run would need too,"
    )
    ranks = spec.resources.slots_per_node
    whom = "it" if cuda or ranks == 1 else f"each of {ranks:,} ranks"
    takes, has = format_distinct(needed, available.bytes)
    message = (
        f"Too little memory: the rank that needs the most takes {takes}, and {which} has {has}"
        f" for {whom}{'' if cuda else ' when no other run is on it'}."
    )
    saving = find_saving(spec, cuda, available.bytes)
    if saving is None:
        layers, width = spec.model.layers, spec.model.width
        remedy = (
            f"Choose a smaller model than {layers:,} layers of width {width:,}, split it over more ranks with parallelism.pipeline or"
            " parallelism.tensor, or add a node with this much memory."
        )
        raise Invalid.at("model.layers", f"{message} {remedy}", layers)
    remedy = f"With {saving.field} {saving.value} instead of {saving.instead_of} it needs {format_bytes(saving.rank_bytes)}."
    raise Invalid.at(saving.field, f"{message} {remedy}", saving.instead_of)


def smallest_slot(session: Read, spec: RunSpec) -> Slot | None:
    """The slot with the least memory on a joined node with enough slots; None if no node reported its memory."""
    capable = [size for size in _joined_sizes(session, spec) if size.slots >= spec.resources.slots_per_node]
    sizes = [Slot(size.node_name, size.slot_bytes) for size in capable if size.slot_bytes]
    return min(sizes, key=lambda slot: slot.bytes, default=None)


def largest_slot(session: Read, spec: RunSpec) -> Slot | None:
    """The most memory that any joined node could give each rank; None if no node reported its memory."""
    ranks = spec.resources.slots_per_node
    sizes = [
        Slot(size.node_name, bytes_per_rank(size.device, size.slots, size.slot_bytes, ranks))
        for size in _joined_sizes(session, spec)
        if size.slot_bytes
    ]
    return max(sizes, key=lambda slot: slot.bytes, default=None)


def _most_available(session: Read, spec: RunSpec) -> Slot | None:
    """The slot with the least memory of the nodes with the most that could run ``spec`` together; None if there are too few nodes."""
    nodes = spec.resources.nodes
    kinds: dict[Hashable, list[Slot]] = {}
    for node in nodes_for(session, spec):
        if _suits(node, spec):
            kind = gpu_names(node.gpus) if needs_equal_gpus(spec) else None
            kinds.setdefault(kind, []).append(Slot(node.name, _bytes_per_rank(node, spec)))
    smallest = [
        sorted(slots, key=lambda slot: -slot.bytes)[nodes - 1]
        for slots in kinds.values()
        if len(slots) >= nodes
    ]
    return max(smallest, key=lambda slot: slot.bytes, default=None)


def _suits(node: JoinedNode, spec: RunSpec) -> bool:
    """Whether the node has the engine and the GPUs that ``spec`` asks for."""
    if spec.resources.device is Device.CPU:
        return can_run(node, spec)
    return (
        can_run(node, spec) and gpu_choice(spec).suits(node.gpus) and has_precision(node.gpus, spec.precision)
    )


def _bytes_per_rank(node: JoinedNode, spec: RunSpec) -> int:
    if spec.resources.device is Device.CUDA:
        return min(gpu.memory_bytes for gpu in node.gpus)
    slots = node.slots[Device.CPU]
    return bytes_per_rank(Device.CPU, slots, node.memory_bytes // slots, spec.resources.slots_per_node)


def _joined_sizes(session: Read, spec: RunSpec) -> Sequence[NodeSize]:
    sizes = select(NodeSize).where(NodeSize.device == spec.resources.device, NodeSize.joined)
    return session.scalars(sizes.order_by(NodeSize.node_name)).all()
