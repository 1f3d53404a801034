"""A request's trace continues in its task and in the claim of the run that it submitted."""

import pytest
from celery.contrib.testing.worker import start_worker

from tests.backend.conftest import upload_letters
from tests.backend.scripted_agent import Scene, patient_settings, scene
from tests.trace_collector import Collector
from trainwright_backend.core.message_queue import TASKS_KEY_PREFIX, TASKS_QUEUE, celery_app
from trainwright_backend.core.settings import Settings
from trainwright_backend.datasets.job_queue import JOB_TASK
from trainwright_backend.datasets.jobs.runner import JobRunner
from trainwright_backend.datasets.jobs.tasks import register_tasks

__all__ = ["patient_settings", "scene"]


@pytest.fixture
def settings(collector: Collector, patient_settings: Settings, valkey_url: str) -> Settings:
    """Those of an application that starts after the collector and sends tasks."""
    return patient_settings.model_copy(update={"tasks_url": valkey_url})


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


def test_what_nodes_and_monitoring_repeat_is_not_traced(collector: Collector, scene: Scene) -> None:
    anonymous = scene.site.anonymous()
    scene.agent.heartbeat()
    assert anonymous.get("/api/v1/health").status_code == 200
    anonymous.get("/metrics")
    anonymous.get("/api/v1/me")
    collector.awaited("GET /api/v1/me")
    assert not [
        each.name
        for each in collector.spans
        if any(part in each.name for part in ("agent", "health", "metrics"))
    ]


def test_a_task_continues_the_trace_of_its_request(
    collector: Collector, scene: Scene, valkey_url: str
) -> None:
    app = scene.site.app
    worker = celery_app(valkey_url, TASKS_KEY_PREFIX)
    register_tasks(worker, JobRunner(app.state.database, app.state.store))
    with start_worker(worker, pool="solo", queues=[TASKS_QUEUE], perform_ping_check=False):
        upload_letters(scene.site, "traced", ready=False)
        task = collector.awaited(f"{JOB_TASK} curate")
    request = collector.awaited("POST /api/v1/teams/{team}/datasets", task.parent)
    assert request.trace == task.trace
