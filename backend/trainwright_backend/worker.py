"""The backend's Celery worker: it runs the tasks of the queue `tasks` one at a time, in this process.

A message only says that there is work. The worker also looks for work by itself every few seconds, so if the broker is
down, data is delayed by seconds but still prepared.

A pool of one (`solo`) needs no child processes that could outlive it. Tokenizing uses all cores by itself; for more workers,
start more processes. There are no results, schedules or remote control.
"""

import threading

from trainwright.tracing import start_tracing
from trainwright_backend.core.db import open_database
from trainwright_backend.core.log import configure_logging
from trainwright_backend.core.message_queue import TASKS_KEY_PREFIX, TASKS_QUEUE, Enqueuer, celery_app
from trainwright_backend.core.open_store import open_store
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.sse import Topics
from trainwright_backend.datasets.jobs.runner import JobRunner
from trainwright_backend.datasets.jobs.tasks import register_tasks


def run_worker(settings: Settings) -> None:
    """Run tasks until SIGTERM.

    Raises:
        ValueError: no tasks broker is configured.
    """
    if settings.tasks_url is None:
        raise ValueError("TRAINWRIGHT_TASKS_URL is not set: a worker needs a broker that sends its tasks")
    configure_logging(settings.log_level, as_json=settings.log_json)
    stop_tracing = start_tracing("trainwright-worker")
    store = open_store(settings)
    enqueuer = Enqueuer(settings)
    database = open_database(settings, {"enqueuer": enqueuer, "topics": Topics()})
    app = celery_app(settings.tasks_url, TASKS_KEY_PREFIX)
    app.conf.worker_hijack_root_logger = False
    runner = JobRunner(database, store)
    register_tasks(app, runner)
    sweep = threading.Thread(target=runner.sweep_until_stopped, name="sweep")
    sweep.start()
    try:
        app.worker_main(
            [
                *("worker", "--queues", TASKS_QUEUE, "--pool", "solo", "--loglevel", settings.log_level),
                *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            ]
        )
    finally:
        runner.stop()
        sweep.join()
        enqueuer.close()
        database.dispose()
        stop_tracing()
