"""The Celery task of datasets: one job per message.

A message only says that there is work; the rows say what, and whose turn it is. So messages may be lost, repeated or
reordered: each runs at most one job, and a finished job sends the message for the next.
"""

from celery import Celery, Task

from trainwright.tracing import TRACEPARENT, span
from trainwright_backend.datasets.job_queue import JOB_TASK
from trainwright_backend.datasets.jobs.runner import JobRunner


def register_tasks(app: Celery, runner: JobRunner) -> None:
    """Register the task with ``app``."""

    def run(task: Task, kind: str, row_id: str) -> None:
        parent = (task.request.headers or {}).get(TRACEPARENT)
        with span(f"{JOB_TASK} {kind}", parent):
            runner.run_one()

    app.task(run, name=JOB_TASK, shared=False, bind=True)
