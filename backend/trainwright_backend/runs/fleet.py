"""What runs must know of the machines that have joined, and what a spec asks that none of them has.

Nodes are a higher feature: `nodes.service` says here how they are read. Where none has joined, or an agent is too old to
say, nothing is known, and what is not known is not refused.
"""

from collections.abc import Callable
from dataclasses import dataclass

from trainwright.contracts.parallelism_spec import EngineKind
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid

SHOWN_NAMES = 3


@dataclass(frozen=True)
class Machine:
    """A joined node, as far as a layout depends on it."""

    name: str
    slots: dict[str, int]
    """By device."""
    memory_bytes: int
    """Of the whole node, beside that of its GPUs."""
    deepspeed: bool | None
    """Whether the engine is installed; None: not told."""


MACHINES: list[Callable[[Read], list[Machine]]] = []


def machines_for(session: Read, spec: RunSpec) -> list[Machine]:
    """The joined nodes with slots enough for ``spec``, by name. Its device is resolved."""
    asked = spec.resources
    every = [machine for read in MACHINES for machine in read(session)]
    return [one for one in every if one.slots.get(asked.device.value, 0) >= asked.slots_per_node]


def check_engine(session: Read, spec: RunSpec) -> None:
    """Refuse an engine that none of the nodes with slots enough has.

    Raises:
        Invalid: at ``parallelism.engine``.
    """
    engine = spec.parallelism.engine
    if engine is not EngineKind.DEEPSPEED:
        return
    large_enough = machines_for(session, spec)
    if large_enough and not any(can_run(machine, spec) for machine in large_enough):
        slots = f"{spec.resources.slots_per_node} {spec.resources.device} slots"
        message = (
            f"deepspeed is not installed on any node with {slots} ({named(large_enough)}): install it there "
            "(pip install 'trainwright[deepspeed]') and restart the node's agent, or use engine native."
        )
        raise Invalid.at("parallelism.engine", message, engine.value)


def can_run(machine: Machine, spec: RunSpec) -> bool:
    """Whether it has the engine of ``spec``, as far as it has told."""
    return spec.parallelism.engine is not EngineKind.DEEPSPEED or machine.deepspeed is not False


def named(machines: list[Machine]) -> str:
    """The first few by name."""
    names = ", ".join(machine.name for machine in machines[:SHOWN_NAMES])
    more = len(machines) - SHOWN_NAMES
    return f"{names} and {more} more" if more > 0 else names
