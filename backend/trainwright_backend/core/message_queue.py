"""Sending Celery messages. A message is a hint: the row that it refers to is the truth, and its owner sends the message
again. So a broker that is slow or down delays one request by about a second and causes a line in the log, but no work
is lost.

There are two brokers, which may be one server with two key prefixes. *Hints* go to agents and contain only run ids. *Tasks*
are for the backend's own workers, because write access to that broker is enough to run its tasks.
"""

import threading
import time

import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from trainwright.contracts.agent_protocol import HINT_TASK, HINTS_KEY_PREFIX, hints_queue
from trainwright.tracing import TRACEPARENT, current_traceparent
from trainwright_backend.core.db import Write
from trainwright_backend.core.settings import Settings

TASKS_QUEUE = "tasks"
TASKS_KEY_PREFIX = "trainwright-tasks:"
CONNECT_SECONDS = 1.0
SENDER_ANSWER_SECONDS = 1.0
"""Requests wait for the sender."""

WORKER_RESPONSE_SECONDS = 5.0
"""Longer than a worker's poll, which waits one second for a message."""

RETRY_AFTER_SECONDS = 5.0
"""How long a failed broker is not tried again: otherwise every hint would wait for it."""

CHECK_SECONDS = 5.0
"""How long the result of a check is valid."""

log = structlog.get_logger()


def celery_app(url: str, key_prefix: str, response_seconds: float = WORKER_RESPONSE_SECONDS) -> Celery:
    """A Celery application for one broker: JSON only, no results, one message at a time."""
    app = Celery("trainwright", broker=url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        broker_connection_timeout=CONNECT_SECONDS,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # a worker that gave up would exit
        broker_transport_options={
            "global_keyprefix": key_prefix,
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_timeout": response_seconds,
            "retry_on_timeout": False,
        },
    )
    return app


class Sender:
    """Sends to one broker, and pauses after a failure."""

    def __init__(self, url: str, key_prefix: str) -> None:
        self._app = celery_app(url, key_prefix, SENDER_ANSWER_SECONDS)
        self._paused_until = 0.0
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        self._responds = True
        self._checked_until = 0.0

    def send(self, name: str, arguments: list[str], queue: str) -> bool:
        """Send one message.

        Returns:
            False if the broker did not accept it.
        """
        trace = current_traceparent()
        headers = None if trace is None else {TRACEPARENT: trace}
        with self._lock:
            if time.monotonic() < self._paused_until:
                return False
            try:
                self._app.send_task(
                    name, args=arguments, queue=queue, ignore_result=True, retry=False, headers=headers
                )
            except (OperationalError, OSError) as error:
                self._paused_until = time.monotonic() + RETRY_AFTER_SECONDS
                log.warning("broker does not respond", task=name, queue=queue, error=str(error))
                return False
        return True

    def responds(self) -> bool:
        """Whether the broker answers within about a second. It is asked at most every few seconds, by one thread: the
        others take the last result instead of waiting."""
        if time.monotonic() >= self._checked_until and self._checking.acquire(blocking=False):
            try:
                self._responds = self._ping()
                self._checked_until = time.monotonic() + CHECK_SECONDS
            finally:
                self._checking.release()
        return self._responds

    def close(self) -> None:
        self._app.close()

    def _ping(self) -> bool:
        try:
            with self._app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=0, timeout=CONNECT_SECONDS)
        except (OperationalError, OSError):
            return False
        return True


class Enqueuer:
    """The two senders of this process. Nothing is sent to a broker that is not configured."""

    def __init__(self, settings: Settings) -> None:
        self._shared = settings.tasks_url == settings.hints_url
        self._tasks = Sender(settings.tasks_url, TASKS_KEY_PREFIX) if settings.tasks_url else None
        self._hints = Sender(settings.hints_url, HINTS_KEY_PREFIX) if settings.hints_url else None

    def send_task(self, name: str, arguments: list[str]) -> bool:
        """Send task ``name`` to the backend's workers."""
        return self._tasks is not None and self._tasks.send(name, arguments, TASKS_QUEUE)

    def send_hint(self, node_name: str, run_id: str) -> bool:
        """Send the agent of a node the hint that ``run_id`` is placed on it."""
        return self._hints is not None and self._hints.send(HINT_TASK, [run_id], hints_queue(node_name))

    def silent_brokers(self) -> list[str]:
        """Names of the configured brokers that do not respond."""
        if self._shared:
            return [] if self._tasks is None or self._tasks.responds() else ["broker"]
        named = (("tasks broker", self._tasks), ("hints broker", self._hints))
        return [name for name, sender in named if sender is not None and not sender.responds()]

    def close(self) -> None:
        for sender in (self._tasks, self._hints):
            if sender is not None:
                sender.close()


def enqueuer_of(session: Write) -> Enqueuer:
    """The enqueuer in ``session.info``."""
    enqueuer = session.info["enqueuer"]
    assert isinstance(enqueuer, Enqueuer)
    return enqueuer


def enqueue_task(session: Write, name: str, *arguments: str) -> None:
    """Send task ``name`` to the backend's workers after ``session`` commits."""
    enqueuer = enqueuer_of(session)
    session.after_commit(lambda: enqueuer.send_task(name, list(arguments)))
