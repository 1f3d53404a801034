"""Messages reach their queue; an unreachable broker costs only a little time."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from trainwright.contracts.agent_protocol import HINT_TASK, HINTS_KEY_PREFIX, hints_queue
from trainwright_backend.core import message_queue
from trainwright_backend.core.broker import start_broker
from trainwright_backend.core.db import Database
from trainwright_backend.core.message_queue import Enqueuer, celery_app, enqueue_task
from trainwright_backend.core.settings import Settings

pytestmark = pytest.mark.both_databases


def settings(**urls: str | None) -> Settings:
    return Settings.model_validate({"secret_key": SecretStr("x" * 40), **urls})


def test_a_hint_is_in_its_node_s_queue_with_the_hints_prefix(valkey_url: str) -> None:
    enqueuer = Enqueuer(settings(hints_url=valkey_url))
    assert enqueuer.send_hint("gpu-1", "run_abc")
    with celery_app(valkey_url, HINTS_KEY_PREFIX).connection_for_read() as connection:
        queue = connection.SimpleQueue(hints_queue("gpu-1"))
        message = queue.get(timeout=5)
        message.ack()
        queue.close()
    assert message.headers["task"] == HINT_TASK and message.payload[0] == ["run_abc"]
    assert not enqueuer.send_task("datasets.prepare", ["x"]), "no tasks broker is configured"
    enqueuer.close()


def test_a_task_is_sent_after_the_commit_only(valkey_url: str, database_url: str) -> None:
    sent: list[str] = []

    class Recorder(Enqueuer):
        def send_task(self, name: str, arguments: list[str]) -> bool:
            sent.append(f"{name}({','.join(arguments)})")
            return True

    database = Database(database_url, {"enqueuer": Recorder(settings(tasks_url=valkey_url))})
    with database.write() as session:
        enqueue_task(session, "t", "1")
        assert sent == []
    assert sent == ["t(1)"]
    database.dispose()


def test_a_broker_that_hangs_costs_about_a_second_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    broker = start_broker(tmp_path_factory.mktemp("broker"))
    enqueuer = Enqueuer(settings(tasks_url=broker.url))
    try:
        assert enqueuer.send_task("t", [])
        broker.process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        assert [enqueuer.send_task("t", []) for _ in range(50)] == [False] * 50
        assert time.monotonic() - started < 3
    finally:
        broker.process.send_signal(signal.SIGCONT)
        enqueuer.close()
        broker.stop()


def test_a_dead_broker_costs_about_a_second_once(tmp_path: Path) -> None:
    enqueuer = Enqueuer(settings(tasks_url=f"redis+socket://{tmp_path}/none.sock?virtual_host=0"))
    started = time.monotonic()
    assert [enqueuer.send_task("t", []) for _ in range(50)] == [False] * 50
    assert time.monotonic() - started < 5
    enqueuer.close()


def test_a_silent_broker_is_named_and_only_one_thread_waits_for_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_queue, "CHECK_SECONDS", 0.0)
    broker = start_broker(tmp_path_factory.mktemp("broker"))
    enqueuer = Enqueuer(settings(tasks_url=broker.url, hints_url=broker.url))
    apart = Enqueuer(settings(tasks_url=broker.url))

    def seconds_to_send(_: int) -> float:
        started = time.monotonic()
        enqueuer.silent_brokers()
        return time.monotonic() - started

    try:
        assert enqueuer.silent_brokers() == apart.silent_brokers() == []
        broker.process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(message_queue, "CHECK_SECONDS", 60.0)
        with ThreadPoolExecutor(20) as pool:
            waits = list(pool.map(seconds_to_send, range(20)))
        assert sum(wait > 0.5 for wait in waits) == 1 and max(waits) < 5, waits
        assert enqueuer.silent_brokers() == ["broker"] and apart.silent_brokers() == ["tasks broker"]
    finally:
        broker.process.send_signal(signal.SIGCONT)
        for each in (enqueuer, apart):
            each.close()
        broker.stop()
