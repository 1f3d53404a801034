"""Row F9 of the fault table: clients and a node whose network is slow, breaks off, or falls silent."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from tests.faults.bad_network import BadNetwork, Quality
from tests.faults.disturbed_run import LONG_FAULTS, TIMERS, DisturbedRun, check_equal, reference_losses
from tests.faults.rows import IS_LONG, FaultRow
from tests.live import TEAM, Live, eventually, finished, live_agent, small_spec, write_letters
from trainwright.client import Client, TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.run_state import RunState
from trainwright.transport.errors import ApiError, DigestMismatchError

Answer = TypeVar("Answer")

SECONDS = 600.0 if IS_LONG else 120.0
"""How long each kind of disturbance lasts."""

TIMEOUT_SECONDS = 10.0
"""The clients' own, so that a silent connection costs seconds."""

QUALITIES = {
    "late": Quality(latency_seconds=(0.05, 0.45)),  # in each direction: 500 ± 400 ms together
    "in pieces of 1 kB": Quality(block_bytes=1_000),
    "broken": Quality(broken=0.3),
    "silent": Quality(silent=0.05),
    "64 kB/s": Quality(bytes_per_second=64_000.0),
}
CALLERS = 4
MAX_FAILED = 0.001
"""The share of calls that may fail in spite of retries."""

MORE_SOCKETS = 3
"""The server may keep so many more connections than before."""


@pytest.fixture(scope="module")
def timers() -> Mapping[str, float]:
    """Three silent connections in succession do not end a lease."""
    return TIMERS | {"lease_seconds": 30.0, "margin_seconds": 5.0}


@dataclass
class Callers:
    """People at the other end of the bad network, and the results of their calls."""

    url: str
    key: str
    dataset: Dataset
    prefix: str
    submitted: dict[str, str] = field(default_factory=dict)
    """Id by the run's name."""
    calls: int = 0
    failures: list[str] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def calling(self, folder: Path, run_id: str, done: str) -> Iterator[None]:
        """Some submit and cancel runs, one uploads files, one reads the losses of a run, and one downloads the model of ``done``."""

        def upload(team: TeamClient, number: int) -> None:
            file = write_letters(folder / "letters.jsonl", documents=2_000 + number)
            self._count(lambda: team.preview([file]))

        def read(team: TeamClient, number: int) -> None:
            self._count(lambda: team.metrics(run_id))

        def download(team: TeamClient, number: int) -> None:
            self._count(lambda: team.download(done, folder / f"model-{number}"))

        actions = [*[self._submit] * CALLERS, upload, read, download]
        with ThreadPoolExecutor(len(actions)) as pool:
            calling = [pool.submit(self._repeat, action, number) for number, action in enumerate(actions)]
            try:
                yield
            finally:
                self._done.set()
            for each in calling:
                each.result()  # raises what is no failure of a call

    def _repeat(self, action: Callable[[TeamClient, int], None], caller: int) -> None:
        """Call on a new connection each time, as people do, so that a good one is not kept."""
        for number in itertools.count(1_000 * caller):
            if self._done.is_set():
                return
            with Client(self.url, self.key, timeout_seconds=TIMEOUT_SECONDS) as client:
                action(client.team(TEAM), number)

    def _submit(self, team: TeamClient, number: int) -> None:
        name = f"{self.prefix}-{number}"
        run = self._count(lambda: team.submit(small_spec(self.dataset, name=name)))
        if run is not None:
            with self._lock:
                self.submitted[name] = run.id
            self._count(lambda: team.cancel(run.id))

    def _count(self, call: Callable[[], Answer]) -> Answer | None:
        failure = None
        try:
            return call()
        except (httpx.TransportError, ApiError, DigestMismatchError) as error:
            failure = repr(error)
        finally:
            with self._lock:
                self.calls += 1
                self.failures += [] if failure is None else [failure]
        return None


@pytest.mark.fault_row(name="F9", trials=5, long=5)
def test_a_bad_network_delays_calls_and_repeats_none(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset, tmp_path: Path
) -> None:
    undisturbed = reference_losses(team, dataset)
    done = finished(team, team.submit(small_spec(dataset)).id).id
    (own,) = live.client.nodes()
    key = live.client.create_key("far").secret
    network = BadNetwork(live.platform.url, seed=20)
    with network.running(), live_agent(live, tmp_path / "node", "far", api=network.url):
        live.client.set_draining(own.id, True)
        run = DisturbedRun.submit(team, dataset, LONG_FAULTS, checkpoint={"every_steps": 500})
        run.wait_until_it_trains(attempt=1)
        for number, kind in enumerate(itertools.islice(itertools.cycle(QUALITIES), row.count)):
            sockets = _sockets(live)
            callers = Callers(network.url, key, dataset, f"n{number}")
            (folder := tmp_path / f"{number}").mkdir()
            disturbed = network.disturbed
            with row.trial(kind):
                network.quality = QUALITIES[kind]
                with callers.calling(folder, run.id, done):
                    time.sleep(SECONDS)
                network.quality = Quality()
                healed = time.monotonic()
                step = run.show().summary.step
                run.wait_until_it_trains(attempt=1, beyond=step)
                row.recovered(healed)
                quality, failed = QUALITIES[kind], callers.failures
                assert callers.calls > SECONDS / 10, f"only {callers.calls} calls"
                if quality.broken or quality.silent:
                    assert (
                        network.disturbed - disturbed > callers.calls * (quality.broken + quality.silent) / 4
                    )
                assert len(failed) <= MAX_FAILED * callers.calls, (
                    f"{len(failed)} of {callers.calls}: {failed[:3]}"
                )
                check_effects(team, callers)
                check_equal(run.losses_so_far(), undisturbed)
                eventually(
                    lambda before=sockets: _sockets(live) <= before + MORE_SOCKETS,
                    "the server closes its connections",
                    60,
                )

        callers = Callers(network.url, key, dataset, "careless")
        network.quality = Quality(silent=1.0)
        spec = small_spec(dataset, name="careless-0")
        _submit_carelessly(callers, spec)
        network.quality = Quality()
        _submit_carelessly(callers, spec)
        for careless in team.runs(q=callers.prefix):
            callers.submitted[careless.name] = team.cancel(careless.id).id
        with row.control():
            check_effects(team, callers)
        live.client.set_draining(own.id, False)


def check_effects(team: TeamClient, callers: Callers) -> None:
    """Fail unless each submission that was acknowledged made one run, which is cancelled."""
    found = [run for run in team.runs(q=callers.prefix) if run.name.startswith(f"{callers.prefix}-")]
    names = Counter(run.name for run in found)
    assert not (repeated := [name for name, times in names.items() if times > 1]), f"repeated: {repeated}"
    if not callers.failures:
        assert {run.name: run.id for run in found} == callers.submitted
    states = {run.state for run in found}
    assert states <= {RunState.CANCELLED}, f"states {states}"


def _submit_carelessly(callers: Callers, spec: Mapping[str, object]) -> None:
    """Submit without an Idempotency-Key and without waiting for the response."""
    headers = {"Authorization": f"Bearer {callers.key}"}
    with suppress(httpx.TransportError):
        httpx.post(f"{callers.url}/api/v1/teams/{TEAM}/runs", json=spec, headers=headers, timeout=3)


def _sockets(live: Live) -> int:
    """Open connections of the API's process."""
    count = 0
    for descriptor in Path(f"/proc/{live.platform.pid('api')}/fd").iterdir():
        with suppress(OSError):
            count += descriptor.readlink().name.startswith("socket:")
    return count
