"""Who is woken by a commit: the streams of a run, and the control loop. Both poll as well, so this only saves time."""

from uuid import UUID

from trainwright_backend.core.db import Write
from trainwright_backend.core.listen import announce

CONTROL_TOPIC = "control"


def run_topic(run_id: UUID) -> str:
    """What the streams of a run wait for."""
    return f"run:{run_id}"


def wake_run(session: Write, run_id: UUID) -> None:
    """Something of the run changed."""
    announce(session, run_topic(run_id))


def wake_control(session: Write) -> None:
    """There may be something to place."""
    announce(session, CONTROL_TOPIC)
