"""A request's trace continues in its task and in the claim of the run that it submitted."""

import threading

import pytest
from celery.contrib.testing.worker import start_worker
from pydantic import SecretStr

from tests.backend.scripted_agent import Scene, patient_settings, scene
from tests.trace_collector import Collector
from trainwright.tracing import span, start_tracing
from trainwright_backend.core.message_queue import TASKS_KEY_PREFIX, TASKS_QUEUE, Enqueuer, celery_app
from trainwright_backend.core.settings import Settings
from trainwright_backend.datasets.job_queue import JOB_TASK
from trainwright_backend.datasets.jobs.tasks import register_tasks

__all__ = ["patient_settings", "scene"]


@pytest.fixture
def settings(collector: Collector, patient_settings: Settings) -> Settings:
    """Those of an application that starts after the collector."""
    return patient_settings


def test_a_run_carries_the_trace_of_its_request_to_its_node(collector: Collector, scene: Scene) -> None:
    run_id = scene.submit()
    scene.control.sweep()
    claim = scene.agent.claim(run_id).claim
    assert claim.traceparent is not None
    _, trace, span_id, _ = claim.traceparent.split("-")

    request = collector.awaited("POST /api/v1/teams/{team}/runs", span_id)
    assert (request.trace, request.service) == (trace, "trainwright-api")
    assert request.attributes["http.response.status_code"] == 201
    assert request.attributes["trainwright.request_id"]
    assert not [each for each in collector.spans if "/agent/" in each.name], "nodes repeat these every second"


def test_a_task_continues_the_trace_of_its_request(collector: Collector, valkey_url: str) -> None:
    ran = threading.Event()

    class Runner:
        def run_one(self) -> bool:
            ran.set()
            return True

    app = celery_app(valkey_url, TASKS_KEY_PREFIX)
    register_tasks(app, Runner())  # type: ignore[arg-type]
    enqueuer = Enqueuer(Settings(secret_key=SecretStr("x" * 40), tasks_url=valkey_url))
    stop = start_tracing("trainwright-api")
    with start_worker(app, pool="solo", queues=[TASKS_QUEUE], perform_ping_check=False):
        with span("request"):
            assert enqueuer.send_task(JOB_TASK, ["parse", "row"])
        assert ran.wait(20)
    stop()
    enqueuer.close()
    request, task = collector.awaited("request"), collector.awaited(f"{JOB_TASK} parse")
    assert (task.trace, task.parent) == (request.trace, request.span)
