"""Row ``api``: response times of the API at 50 requests a second, with 10,000 runs in SQLite.

Requests are sent at fixed times, whether or not earlier ones were answered, and their waiting time counts from then. Three of
five read (a page of the list, a run, a chart), one writes (a submission or its cancellation, alternately), and one gets the
server's shortest answer, which is the peer: other load on the machine affects all of them equally.
"""

from __future__ import annotations

import argparse
import itertools
import queue
from collections.abc import Callable, Iterator
from statistics import median

from tests.benchmarks.platform.open_loop import Call, Responses, ask, p95
from tests.benchmarks.platform.reads import fill_runs, fill_series
from tests.benchmarks.platform.server import SPEC, TEAM, Caller, Site, running_site
from tests.benchmarks.report.entries import Entry
from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright.contracts.token_shards import Shard, ShardManifest, ShardSplit, TokenType
from trainwright_backend.datasets.tables import Preparation

Entries = dict[str, Entry]

REQUESTS_PER_SECOND = 50
CALLERS = 16
POINTS = 10_000
"""Points of the series that the chart shows."""
PATIENCE_SECONDS = 90.0
"""How long a cancellation waits for its submission."""
READ_MARK = 30.0
"""Milliseconds, like `WRITE_MARK`."""
WRITE_MARK = 60.0
_CYCLE = ("list", "write", "run", "health", "chart")


def api(given: argparse.Namespace) -> Entries:
    """95th percentiles of reads and of writes."""
    runs, seconds = (2_000, 2) if given.toy else (10_000, 20)
    with running_site("sqlite") as site:
        fill_runs(site, runs)
        allow_submissions(site)
        watched_id, watched = site.start_run()
        fill_series(site, watched_id, ["loss"], POINTS)
        calls = _calls(site, watched)
        _ask(site, itertools.islice(calls, REQUESTS_PER_SECOND))  # the first of each kind warms up
        responses = _ask(site, itertools.islice(calls, REQUESTS_PER_SECOND * seconds))
    reads = responses.p95("list", "run", "chart")
    for kind, found in sorted(responses.waits.items()):
        print(f"  {kind}: median {median(found):.1f} ms, p95 {p95(found):.1f} ms")
    health = responses.p95("health")
    return {
        "api-reads": _entry(reads, health, READ_MARK),
        "api-writes": _entry(responses.p95("write"), health, WRITE_MARK),
    }


def _ask(site: Site, calls: Iterator[tuple[str, Call]]) -> Responses:
    """Ask from all connections.

    Raises:
        Exception: the first error of a call.
    """
    responses = ask(site.people(CALLERS), calls, REQUESTS_PER_SECOND)
    if responses.errors:
        raise responses.errors[0]
    return responses


def _calls(site: Site, watched: str) -> Iterator[tuple[str, Call]]:
    runs = f"{site.team_path}/runs"
    dataset = site.person().get(f"{site.team_path}/datasets")["items"][0]["id"]
    spec = SPEC | {"data": {"dataset": dataset, "tokenizer": {"kind": "bytes"}}}
    submitted: queue.SimpleQueue[str] = queue.SimpleQueue()
    read: dict[str, Call] = {
        "list": lambda caller: caller.get(runs, {"limit": 50}),
        "run": lambda caller: caller.get(f"{runs}/{watched}"),
        "chart": lambda caller: caller.get(f"{runs}/{watched}/metrics", {"points": 1_000}),
        "health": lambda caller: caller.get("/api/v1/health"),
    }

    def submit(caller: Caller) -> None:
        submitted.put(caller.post(runs, spec)["id"])

    def cancel(caller: Caller) -> None:
        caller.ask("POST", f"{runs}/{submitted.get(timeout=PATIENCE_SECONDS)}/cancel")

    writes = itertools.cycle((submit, cancel))
    for kind in itertools.cycle(_CYCLE):
        yield kind, next(writes) if kind == "write" else read[kind]


def allow_submissions(site: Site) -> None:
    """Give the team enough data for a run, which nodes can claim but not download, and slots for all submissions."""
    shard = Shard(name="train-00000.bin", digest="0" * 64, bytes=2 * 10**6, tokens=10**6, documents=1)
    manifest = ShardManifest(
        tokenizer=TokenizerSpec(kind=TokenizerKind.BYTES),
        end_of_text=256,
        token_type=TokenType.for_vocabulary(257),
        tokenizer_digest="0" * 64,
        validation_fraction=0.01,
        train=ShardSplit(documents=1, tokens=10**6, shards=[shard]),
    )
    with site.database.write() as session:
        preparation = session.get_one(Preparation, site.preparation_id)
        preparation.manifest = manifest.model_dump(mode="json")
        preparation.train_tokens = manifest.train.tokens
        preparation.manifest_bytes, preparation.manifest_digest = 1_000, "0" * 64
        preparation.tokenizer_bytes = 1_000
    body = b'{"limit": 1000}'
    site.person().ask("PUT", f"/api/v1/teams/{TEAM}/quota/cpu", body)


def _entry(ours: float, peer: float, mark: float) -> Entry:
    """Marks are milliseconds; the ratio shows how much is due to the machine."""
    reached = "goal" if ours <= mark else "no"
    return Entry(ours, peer, ours / peer, "ms p95, peer: /health", mark / peer, mark / peer, reached)


API_ROWS: dict[str, Callable[[argparse.Namespace], Entries]] = {"api": api}
