"""What this process counts, for Prometheus (`GET /metrics`).

Each API process has its own counts and is scraped by itself. What the database knows, such as the queue and the nodes, is not
counted here but read at the scrape (`monitoring`). Labels have few values: a route's template, never its address; a code, never
a message or the id of a run.
"""

from importlib.metadata import version
from platform import python_version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState

disable_created_metrics()  # a series with the time of creation for each counter, which nothing here uses

REGISTRY = CollectorRegistry()
"""All counts of this process, and its memory, CPU time and open files."""

ProcessCollector(registry=REGISTRY)

BUILD = Info("trainwright_build", "Version of this server.", registry=REGISTRY)
BUILD.info({"version": version("trainwright"), "python": python_version()})

REQUESTS = Histogram(
    "trainwright_http_request_seconds",
    "Seconds from a request to the start of its response. A client that left gets no status.",
    ("method", "route", "status"),
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30),
    registry=REGISTRY,
)
"""Until the start: a stream or a download takes as long as its client wants."""

ROUNDS = Histogram(
    "trainwright_control_round_seconds",
    "Seconds of a round of the control loop in the process that leads.",
    ("kind",),
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30),
    registry=REGISTRY,
)
"""Kind `place` only places runs, kind `sweep` does everything."""

LAST_ROUND = Gauge(
    "trainwright_control_last_round_timestamp_seconds",
    "Unix time at which this process last completed a round as the leader; 0 if it never has.",
    registry=REGISTRY,
)
STEP_ERRORS = Counter(
    "trainwright_control_step_errors",
    "Steps of the control loop that failed and are repeated in a later round.",
    registry=REGISTRY,
)

ATTEMPTS_STARTED = Counter(
    "trainwright_attempts_started", "Attempts of runs that started on nodes.", registry=REGISTRY
)
ATTEMPTS_ENDED = Counter(
    "trainwright_attempts_ended", "Attempts of runs that ended, by end code.", ("code",), registry=REGISTRY
)
RUNS_ENDED = Counter(
    "trainwright_runs_ended",
    "Runs that succeeded, failed or were cancelled, by end code.",
    ("state", "code"),
    registry=REGISTRY,
)
LEASES_EXPIRED = Counter(
    "trainwright_leases_expired", "Leases of nodes that were not renewed in time.", registry=REGISTRY
)

STORE_ERRORS = Counter(
    "trainwright_object_store_errors",
    "Requests to the object store that failed (unavailable), and objects with wrong bytes (damaged).",
    ("kind",),
    registry=REGISTRY,
)
STORE_BYTES = Counter(
    "trainwright_object_store_bytes",
    "Bytes that this process wrote to the object store or read from it. Presigned links bypass it.",
    ("direction",),
    registry=REGISTRY,
)
DATABASE_UNAVAILABLE = Counter(
    "trainwright_database_unavailable",
    "Transactions refused because the database was locked, full or unreachable.",
    registry=REGISTRY,
)
WEBHOOK_ATTEMPTS = Counter(
    "trainwright_webhook_attempts",
    "Attempts to deliver a message of a webhook: delivered, failed (will be repeated), or given up.",
    ("outcome",),
    registry=REGISTRY,
)
SIGN_INS_REFUSED = Counter(
    "trainwright_sign_ins_refused", "Sign-ins that were refused, by reason.", ("reason",), registry=REGISTRY
)

for code in EndCode:
    ATTEMPTS_ENDED.labels(code)
    RUNS_ENDED.labels(RunState.FAILED, code)
for counter, values in {
    STORE_ERRORS: ("unavailable", "damaged"),
    STORE_BYTES: ("written", "read"),
    WEBHOOK_ATTEMPTS: ("delivered", "failed", "given_up"),
    SIGN_INS_REFUSED: ("wrong_password", "too_many_attempts", "provider"),
}.items():  # from zero on: otherwise `increase` would miss the first of each
    for value in values:
        counter.labels(value)
