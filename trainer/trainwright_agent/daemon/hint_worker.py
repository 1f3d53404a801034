"""The agent's Celery child, which receives dispatch hints.

    celery --app trainwright_agent.daemon.hint_worker worker --queues node.<name> --pool solo …

It is a separate process, because a Celery worker may stop consuming after a reconnect, hang or crash, and must not stop
the agent. It has the broker's address and one end of a unix socket to the agent, but no token and no data of a run. Its
one task writes the run's id to that socket; the agent then claims the run over HTTP. The kernel kills the child when
the agent exits.

Only that child imports this module; `hints` starts it.
"""

from __future__ import annotations

import os
import signal

from celery import Celery

from trainwright.contracts.agent_protocol import HINT_TASK, HINTS_KEY_PREFIX
from trainwright_agent.daemon.hints import SOCKET_VARIABLE, URL_VARIABLE
from trainwright_agent.processes import PARENT_VARIABLE, die_with_parent

if PARENT_VARIABLE in os.environ:
    die_with_parent(int(os.environ[PARENT_VARIABLE]), signal.SIGKILL)

app = Celery("trainwright_agent", broker=os.environ.get(URL_VARIABLE, "memory://"))
app.conf.update(
    accept_content=["json"],
    task_serializer="json",
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"global_keyprefix": HINTS_KEY_PREFIX},
)


@app.task(name=HINT_TASK)  # type: ignore[untyped-decorator]
def dispatch(run_id: str) -> None:
    """A run was placed on this node: trigger a heartbeat."""
    os.write(int(os.environ[SOCKET_VARIABLE]), f"{run_id}\n".encode())
