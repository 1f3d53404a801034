"""Whether a node's agent, without which nothing is shipped, can still be expected to work."""

from trainwright.contracts.agent_protocol import Timers
from trainwright_backend.core.db import Read, now
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Placement

AGENT_SILENT_SECONDS = 300.0
"""After so long without a heartbeat (at the standard lease) no agent is expected to ship or to report the end."""


def is_agent_silent(session: Read, placement: Placement, timers: Timers) -> bool:
    """Whether the agent of the placement's node has sent no heartbeat for too long."""
    heartbeat = session.get_one(Node, placement.node_id).last_heartbeat
    silent_seconds = (now() - heartbeat).total_seconds() if heartbeat is not None else float("inf")
    return silent_seconds > AGENT_SILENT_SECONDS * timers.scale
