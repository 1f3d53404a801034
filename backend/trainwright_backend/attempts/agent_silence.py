"""Whether a node's agent is likely still working. Without it, the node sends no events, logs or checkpoints."""

from trainwright.contracts.agent_protocol import Timers
from trainwright_backend.core.db import Read, now
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Placement

AGENT_SILENT_SECONDS = 300.0
"""After this time without a heartbeat (at the standard lease), the agent is not expected to send anything or to report
the end."""


def is_agent_silent(session: Read, placement: Placement, timers: Timers) -> bool:
    """Whether the agent of the placement's node has sent no heartbeat for too long."""
    heartbeat = session.get_one(Node, placement.node_id).last_heartbeat
    silent_seconds = (now() - heartbeat).total_seconds() if heartbeat is not None else float("inf")
    return silent_seconds > AGENT_SILENT_SECONDS * timers.scale
