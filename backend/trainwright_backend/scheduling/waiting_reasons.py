"""Messages that tell users what a queued run waits for, and the few classes into which operators sort them."""

import re
from collections.abc import Sequence
from enum import StrEnum

from trainwright.sizes import format_bytes, format_distinct
from trainwright_backend.runs.state_text import ordinal
from trainwright_backend.runs.submission import NO_NODE
from trainwright_backend.scheduling.node_capacity import NodeCapacity
from trainwright_backend.scheduling.node_pool import Match
from trainwright_backend.scheduling.requirements import Needs
from trainwright_backend.teams.slot_quota import SLOT_NOUNS

_SIZE = r"needs (\d+ slots?|\d+ nodes with \d+ slots? each)"
_CLASSES = (
    (re.compile(r"preparing( its data|, \d+ of \d+ shards)$"), "data"),
    (re.compile(rf"{_SIZE}(, \d+ free on \d+ nodes?|; \d+ of \d+ such nodes (is|are) free)(;|$)"), "slots"),
    (re.compile(rf"({_SIZE}(;| on | and | that )|needs a node with )"), "no_node"),
)
"""The class of a reason, by the beginning of its message, before any name that a person chose."""


class WaitingClass(StrEnum):
    """What a queued run waits for."""

    TURN = "turn"
    """No round of the control loop has considered it yet."""
    DATA = "data"
    """Its dataset is being prepared."""
    SLOTS = "slots"
    """The nodes that could run it are occupied."""
    NO_NODE = "no_node"
    """No node, or too few, could run it, even if they were free."""
    LIMIT = "limit"
    """A limit of its team or of its submitter."""


def waiting_class(message: str) -> WaitingClass:
    """The class of a message that a queued run shows. All others than those of nodes and data are about limits."""
    if not message:
        return WaitingClass.TURN
    if message.startswith(NO_NODE):
        return WaitingClass.NO_NODE
    found = next((name for beginning, name in _CLASSES if beginning.match(message)), "limit")
    return WaitingClass(found)


def waits_for(match: Match, unavailable: Sequence[NodeCapacity]) -> str:
    """What a run waits for that no nodes can take now. ``unavailable`` nodes are drained, in quarantine or offline."""
    needs, capable = match.needs, match.capable
    if not match.allowed and not unavailable:
        return NO_NODE
    if not capable:
        return _needs_another_node(needs, match.allowed, unavailable)
    if needs.nodes > 1:
        state = _state_of_nodes(match)
        others = [capacity for capacity in unavailable if capacity.has_host_memory(needs)]
        if len(capable) < needs.nodes and (aside := _put_aside(others)):
            state = f"{_nodes(len(capable))} of that size {_are(len(capable))} available; {aside}"
        return f"needs {_size(needs)}; {state}"
    free = sum(len(capacity.free[needs.device]) for capacity in capable)
    return f"needs {_size(needs)}, {free} free on {_nodes(len(capable))}"


def in_line(position: int, before: str) -> str:
    """The place of a run in its team's queue, behind the run named ``before``."""
    return f"; {ordinal(position)} in line, behind {before}"


def covered_by_share(covered: bool, *, has_room: bool) -> str:
    """The end of a waiting run's sentence if its team's guaranteed share covers it."""
    if not covered:
        return ""
    freed = ", and slots are being freed for it" if has_room else ""
    return f"; your team's guaranteed share covers it{freed}"


def _needs_another_node(
    needs: Needs, available: Sequence[NodeCapacity], unavailable: Sequence[NodeCapacity]
) -> str:
    """The reason of a run that none of the available nodes could run."""
    size = f"needs {_size(needs)}"
    if others := [capacity for capacity in unavailable if capacity.could_run(needs)]:
        with_memory = [capacity for capacity in others if capacity.has_host_memory(needs)]
        if aside := _put_aside(with_memory or others):
            return f"{size}; {aside}"
        if with_memory and any(capacity.could_run(needs) for capacity in available):
            host = format_bytes(needs.memory.host_bytes)
            return f"{size} and {host} of the node's own memory; {with_memory[0].name} has enough but is not online"
    large_enough = [capacity for capacity in available if capacity.kind.is_large_enough(needs)]
    if not large_enough:
        slots = _count(needs.slots, "slot")
        return f"needs {slots} on one node; no online node has that many {SLOT_NOUNS[needs.device]}s"
    if too_small := [capacity for capacity in large_enough if capacity.kind.has_software(needs)]:
        return _needs_memory(needs, too_small)
    if needs.precision is not None and any(not capacity.kind.has_gpus(needs) for capacity in large_enough):
        return f"{size} on {needs.precision.hardware}, which no online node has"
    if needs.gpus and not any(needs.gpus.suits(capacity.kind.gpus) for capacity in large_enough):
        return f"{size} on {needs.gpus}, which no online node has"
    named = ", ".join(capacity.name for capacity in large_enough[:3])
    if needs.nodes > 1 and all(not capacity.kind.has_address for capacity in large_enough):
        return f"{size} that can reach each other; {named} reported no address for other nodes"
    return f"{size} and engine {needs.engine}, which is not installed on {named}"


def _put_aside(nodes: Sequence[NodeCapacity]) -> str:
    """Which of the nodes are drained or, if none is, in quarantine."""
    if names := [node.name for node in nodes if node.draining]:
        return f"{', '.join(names[:3])} {_are(len(names))} drained"
    if names := [node.name for node in nodes if node.in_quarantine]:
        return f"{', '.join(names[:3])} {_are(len(names))} in quarantine until a self-test passes"
    return ""


def _needs_memory(needs: Needs, nodes: Sequence[NodeCapacity]) -> str:
    """The reason of a run that needs more memory than any of these online nodes has."""
    most, largest = max((capacity.memory_for(needs) or 0, capacity.name) for capacity in nodes)
    needed, has = format_distinct(needs.memory.rank_bytes, most)
    return f"needs a node with {needed} for a rank; the largest online node, {largest}, has {has}"


def _state_of_nodes(match: Match) -> str:
    """How many nodes a run on several nodes could use now."""
    needs, capable, reached = match.needs, match.capable, match.together
    if len(capable) < needs.nodes:
        return f"{_nodes(len(capable))} of that size {_are(len(capable))} online"
    if (
        len(reached) < needs.nodes
        and needs.alike
        and len({capacity.kind.gpu_names for capacity in capable}) > 1
    ):
        return f"at most {_nodes(len(reached))} of that size with the same GPUs {_are(len(reached))} online"
    if len(reached) < needs.nodes:
        return (
            f"{_nodes(len(capable))} of that size are online, but those that joined through a loopback address share runs "
            "only with each other"
        )
    ready = sum(len(capacity.free[needs.device]) >= needs.slots for capacity in reached)
    return f"{ready} of {len(reached)} such nodes {'is' if ready == 1 else 'are'} free"


def _size(needs: Needs) -> str:
    slots = _count(needs.slots, "slot")
    return slots if needs.nodes == 1 else f"{_nodes(needs.nodes)} with {slots} each"


def _nodes(number: int) -> str:
    return _count(number, "node")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
