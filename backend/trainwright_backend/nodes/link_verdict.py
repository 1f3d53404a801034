"""Whether a suspected node is to blame for connections that fail or are slow.

A bad connection has two ends and a network between them, so one connection proves nothing. The suspect is compared with two of its
neighbours: it is to blame only if its connections to both are bad, and the connection between the two is good. A connection is
bad if it fails, or if it has less than a third of the speed of that between the neighbours, which shares their load and
their network. So neither one faulty neighbour, nor a slow network of all, nor a neighbour that does not respond convicts the suspect.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.contracts.agent_protocol import SelfTestCheck

SLOWEST_FRACTION = 1 / 3
"""Least speed of a good connection, as a fraction of that between two neighbours. Training can take half of each of their
connections while they are tested."""


@dataclass(frozen=True)
class LinkMeasurement:
    """The result of a connection between two nodes."""

    nodes: tuple[str, str]
    """Their names."""
    bytes_per_second: float
    """In the slower direction; 0 if it failed."""
    problem: str
    """What was wrong, in a few words; empty if data passed unchanged both ways."""

    def other(self, name: str) -> str:
        return self.nodes[1] if self.nodes[0] == name else self.nodes[0]

    def is_slower_than(self, reference: "LinkMeasurement") -> bool:
        return self.bytes_per_second < SLOWEST_FRACTION * reference.bytes_per_second

    def __str__(self) -> str:
        return self.problem or f"{self.bytes_per_second / 1e6:,.1f} MB/s"


def judge_links(suspect: str, links: Sequence[LinkMeasurement]) -> list[SelfTestCheck]:
    """A check of each connection of the suspect. They fail together or not at all.

    Args:
        suspect: name of the node in quarantine.
        links: its connections to at most two neighbours, and the one between the two.
    """
    own = [link for link in links if suspect in link.nodes]
    between = next((link for link in links if suspect not in link.nodes), None)
    good = [link for link in own if not link.problem and not (between and link.is_slower_than(between))]
    to_blame = between is not None and not between.problem and not good
    checks = []
    for link in own:
        why = "" if link in good else f"; {_why(suspect, link, good, between)}"
        name = f"connection to {link.other(suspect)}"
        checks.append(SelfTestCheck(name=name, passed=not to_blame, detail=f"{link}{why}"))
    return checks


def _why(
    suspect: str, link: LinkMeasurement, good: Sequence[LinkMeasurement], between: LinkMeasurement | None
) -> str:
    """Why the suspect is to blame for one of its bad connections, or is not."""
    if between is None:
        return "without a second neighbour, this does not show which of the two nodes is at fault"
    neighbours = " and ".join(between.nodes)
    if good:
        works = f"{good[0].other(suspect)} exchanges data with this node with {good[0]}"
        return f"{works}, so {link.other(suspect)} may be at fault"
    if between.problem:
        return f"{neighbours} cannot exchange data either ({between.problem}), so the network or one of them is at fault"
    return f"{neighbours} exchange data with {between}"
