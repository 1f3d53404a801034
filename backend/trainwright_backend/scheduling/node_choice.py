"""Which of the free nodes a run gets, and which nodes are reserved for a run that does not fit now.

A run on one node gets the fullest node with enough free slots, so that large gaps remain. A run on several nodes gets nodes
from as few locations as possible, ordered by location, so that neighbouring ranks are near each other.
"""

from collections.abc import Sequence
from math import inf

from trainwright_backend.scheduling.node_capacity import NodeCapacity, within_reach
from trainwright_backend.scheduling.node_pool import Match


def choose_nodes(match: Match, seconds: float = inf) -> list[NodeCapacity]:
    """The nodes for a run, in the order of their ranks; none if it does not fit now. ``seconds``: how long it takes."""
    needs = match.needs
    capable = [
        capacity for capacity in match.with_free_slots() if capacity.reserved_from(needs.device) >= seconds
    ]
    if len(capable) < needs.nodes or len(capable := within_reach(capable, needs)) < needs.nodes:
        return []
    capable.sort(key=lambda capacity: len(capacity.free[needs.device]))  # of equal ones, by name
    chosen = capable[: needs.nodes] if needs.nodes == 1 else _near_each_other(capable, needs.nodes)
    return sorted(chosen, key=lambda capacity: (capacity.location, capacity.name))


def longest_gap(match: Match) -> float:
    """The longest time for which as many nodes as the run needs have enough free slots and are not reserved, whether or not they reach each other; -1 if too few have
    free slots."""
    needs = match.needs
    gaps = sorted(
        (capacity.reserved_from(needs.device) for capacity in match.with_free_slots()), reverse=True
    )
    return gaps[needs.nodes - 1] if len(gaps) >= needs.nodes else -1.0


def nodes_to_reserve(match: Match) -> list[NodeCapacity]:
    """The nodes that are kept free for a run that does not fit now: for a run on one node, all that could ever run it; for one on
    several, as many as it needs, those with the most free slots first."""
    needs = match.needs
    if needs.nodes == 1:
        return list(match.unreserved())
    if len(match.together) < needs.nodes:  # they would wait for nodes that do not exist
        return []
    capable = [capacity for capacity in match.together if needs.device not in capacity.reservations]
    capable.sort(key=lambda capacity: -len(capacity.free[needs.device]))  # of equal ones, by name
    return capable[: needs.nodes]


def _near_each_other(capable: Sequence[NodeCapacity], count: int) -> list[NodeCapacity]:
    """``count`` of the nodes: of the smallest location that has enough of them, otherwise of as few as possible."""
    by_location: dict[str, list[NodeCapacity]] = {}
    for capacity in capable:
        by_location.setdefault(capacity.location, []).append(capacity)
    locations = sorted(by_location.values(), key=len)
    enough = next((nodes for nodes in locations if len(nodes) >= count), None)
    if enough is not None:
        return enough[:count]
    return [capacity for nodes in reversed(locations) for capacity in nodes][:count]
