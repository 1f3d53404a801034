"""Notifications after a commit, to the streams of a run and to the control loop. Both also poll, so this only
saves time."""

from uuid import UUID

from trainwright_backend.core.db import Write
from trainwright_backend.core.notifications import notify

CONTROL_TOPIC = "control"


def run_topic(run_id: UUID) -> str:
    """The topic of a run's streams."""
    return f"run:{run_id}"


def notify_run(session: Write, run_id: UUID) -> None:
    """Notify the run's streams that something changed."""
    notify(session, run_topic(run_id))


def notify_control(session: Write) -> None:
    """Notify the control loop that there may be something to place."""
    notify(session, CONTROL_TOPIC)
