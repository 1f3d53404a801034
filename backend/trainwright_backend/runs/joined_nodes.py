"""The joined nodes, as far as runs depend on them, and the refusal of an engine that none of them has.

Nodes are a higher feature, so `nodes.service` registers here how they are read. If no node has joined, or an
agent is too old to report something, nothing is known, and nothing is refused for it.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import func, select

from trainwright.contracts.agent_protocol import CpuPeak, Gpu
from trainwright.contracts.api.people import Quota
from trainwright.contracts.listing import listed
from trainwright.contracts.parallelism_spec import Device, EngineKind
from trainwright.contracts.precision_spec import PrecisionSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid
from trainwright_backend.runs.tables import NodeSize
from trainwright_backend.teams.slot_quota import all_guaranteed_slots, count_slots

SHOWN_NAMES = 3
LOOPBACK = ("127.", "localhost")
"""Prefixes of addresses that can be reached only from the same machine."""

AnyNode = TypeVar("AnyNode")


@dataclass(frozen=True)
class JoinedNode:
    """The properties of a joined node that a layout depends on."""

    name: str
    slots: dict[str, int]
    """Number of slots, by device."""
    memory_bytes: int
    """Host memory."""
    deepspeed: bool | None
    """Whether DeepSpeed is installed; None if the agent did not report it."""
    cpu_peak: CpuPeak | None
    gpus: list[Gpu]
    peer_address: str | None
    """At which other nodes reach it; None if its agent cannot run a part of a run."""


NODE_SOURCES: list[Callable[[Read], list[JoinedNode]]] = []


def nodes_for(session: Read, spec: RunSpec) -> list[JoinedNode]:
    """The joined nodes with enough slots for ``spec``, whose device is resolved, by name."""
    resources = spec.resources
    every = [machine for read in NODE_SOURCES for machine in read(session)]
    return [item for item in every if item.slots.get(resources.device.value, 0) >= resources.slots_per_node]


def is_loopback(peer_address: str | None) -> bool:
    """Whether only the same machine can be reached at the address."""
    return peer_address is not None and peer_address.startswith(LOOPBACK)


def needs_equal_gpus(spec: RunSpec) -> bool:
    """Whether all nodes of ``spec``, whose device is resolved, must have the same GPUs, because ranks with the same layers and different
    data are on several nodes: those with slower GPUs would make the others wait in each step."""
    resources, degrees = spec.resources, spec.degrees
    if resources.device is not Device.CUDA or resources.nodes == 1 or degrees.data == 1:
        return False
    return resources.slots_per_node % (degrees.data * degrees.tensor) != 0


def gpu_names(gpus: Sequence[Gpu]) -> frozenset[str]:
    """The models of a node's GPUs."""
    return frozenset(gpu.name for gpu in gpus)


def nodes_together(
    nodes: Sequence[AnyNode],
    count: int,
    is_local: Callable[[AnyNode], bool],
    kind: Callable[[AnyNode], Hashable] = lambda _: None,
) -> list[AnyNode]:
    """Nodes of one ``kind`` that can reach each other: at least ``count`` if possible, otherwise as many as possible.

    Nodes on the server's own machine that joined through a loopback address reach only each other.
    """
    groups: dict[tuple[bool, Hashable], list[AnyNode]] = {}
    for node in nodes:
        groups.setdefault((is_local(node), kind(node)), []).append(node)
    largest_first = [groups[key] for key in sorted(groups, key=lambda key: (key[0], -len(groups[key])))]
    enough = next((group for group in largest_first if len(group) >= count), None)
    return enough or max(largest_first, key=len, default=[])


def bytes_per_rank(device: str, slots: int, slot_bytes: int, ranks: int) -> int:
    """The most memory that a node with ``slots`` slots of ``slot_bytes`` could give each of ``ranks`` ranks.

    The ranks of a run share the memory of a CPU node when nothing else runs there.
    """
    shares = device == Device.CPU and slots > ranks
    return slot_bytes * slots // ranks if shares else slot_bytes


def with_joined_slots(session: Read, quota: list[Quota]) -> list[Quota]:
    """``quota`` with the slots of all joined nodes."""
    sizes = select(NodeSize.device, func.sum(NodeSize.slots)).where(NodeSize.joined).group_by(NodeSize.device)
    joined = {device: int(slots) for device, slots in session.execute(sizes)}
    return [item.model_copy(update={"joined": joined.get(item.device, 0)}) for item in quota]


def with_share_warning(session: Read, quota: Quota) -> Quota:
    """``quota`` with the slots of all joined nodes, and a warning if the shares of all teams exceed them."""
    [shown] = with_joined_slots(session, [quota])
    shares, joined = all_guaranteed_slots(session, quota.device), shown.joined or 0
    if not quota.guaranteed_slots or shares <= joined:
        return shown
    warning = (
        f"The shares of all teams are {count_slots(quota.device, shares)}, and the nodes have {joined}. Not all teams can use "
        "their shares at the same time."
    )
    return shown.model_copy(update={"warning": warning})


def check_engine(session: Read, spec: RunSpec) -> None:
    """Refuse an engine that none of the nodes with enough slots has.

    Raises:
        Invalid: at ``parallelism.engine``.
    """
    engine = spec.parallelism.engine
    if engine is not EngineKind.DEEPSPEED:
        return
    large_enough = nodes_for(session, spec)
    if large_enough and not any(can_run(machine, spec) for machine in large_enough):
        slots = count_slots(spec.resources.device, spec.resources.slots_per_node)
        message = (
            f"deepspeed is not installed on any node with {slots} ({named(large_enough)}): install it there "
            "(pip install 'trainwright[deepspeed]') and restart the node's agent, or use engine native."
        )
        raise Invalid.at("parallelism.engine", message, engine.value)


def check_precision(session: Read, spec: RunSpec) -> None:
    """Refuse a precision that the GPUs of none of the nodes with enough slots have.

    Raises:
        Invalid: at ``precision.kind``.
    """
    nodes = nodes_for(session, spec) if spec.resources.device is Device.CUDA else []
    if nodes and not any(has_precision(node.gpus, spec.precision) for node in nodes):
        gpus = {gpu.name: gpu.capability for node in nodes for gpu in node.gpus}
        present = ", ".join(
            f"{name} has {capability}" for name, capability in sorted(gpus.items())[:SHOWN_NAMES]
        )
        message = (
            f"{spec.precision.kind} needs {spec.precision.hardware}, but {present}: use bf16, or add a node."
        )
        raise Invalid.at("precision.kind", message, spec.precision.kind.value)


def has_precision(gpus: Sequence[Gpu], precision: PrecisionSpec) -> bool:
    """Whether all GPUs of a node have the matmuls of ``precision``, as far as its agent reported."""
    return all(gpu.can_compute(precision) for gpu in gpus)


def can_run(machine: JoinedNode, spec: RunSpec) -> bool:
    """Whether the node has the engine of ``spec``, as far as its agent reported."""
    return spec.parallelism.engine is not EngineKind.DEEPSPEED or machine.deepspeed is not False


def named(machines: list[JoinedNode]) -> str:
    """Names of the first few."""
    return listed([machine.name for machine in machines], SHOWN_NAMES)
