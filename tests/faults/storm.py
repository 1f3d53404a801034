"""People who submit and cancel runs as fast as they can while a test disturbs the server, and what the server acknowledged."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.live import TEAM, Live, eventually
from trainwright.client import Client, TeamClient
from trainwright.contracts.run_state import RunState
from trainwright.transport.errors import ApiError

CALLERS = 4


@dataclass
class Storm:
    """The callers and what they were told."""

    live: Live
    spec: Mapping[str, Any]
    submitted: dict[str, str] = field(default_factory=dict)
    """Id by the run's name."""
    cancelled: set[str] = field(default_factory=set)
    _done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def blowing(self) -> Iterator[None]:
        key = self.live.client.create_key("storm").secret
        callers = [threading.Thread(target=self._call, args=(number, key)) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            yield
        finally:
            self._done.set()
            for caller in callers:
                caller.join()

    def wait_for_another(self) -> None:
        """Wait until one more run is submitted."""
        known = len(self.submitted)
        eventually(lambda: len(self.submitted) > known, "runs are submitted again", 60)

    def _call(self, number: int, key: str) -> None:
        with Client(self.live.platform.url, key) as client:
            team = client.team(TEAM)
            count = 0
            while not self._done.is_set():
                count += 1
                name = f"storm-{number}-{count}"
                # The client repeats a request whose response is lost. What it gives up is not acknowledged.
                with suppress(httpx.TransportError, ApiError):
                    run_id = team.submit({**self.spec, "name": name}).id
                    self.submitted[name] = run_id
                    team.cancel(run_id)
                    self.cancelled.add(run_id)


def listed_runs(team: TeamClient) -> list[tuple[str, str, RunState]]:
    """Name, id and state of the storm's runs."""
    return [(run.name, run.id, run.state) for run in team.runs() if run.name.startswith("storm-")]


def check_acknowledged(storm: Storm, listed: Iterable[tuple[str, str, RunState]]) -> None:
    """Fail unless each acknowledged run exists once under its name, and each acknowledged cancel holds."""
    ids: dict[str, list[str]] = {}
    states = {}
    for name, run_id, state in listed:
        ids.setdefault(name, []).append(run_id)
        states[run_id] = state
    lost = [name for name, run_id in storm.submitted.items() if run_id not in ids.get(name, [])]
    assert not lost, f"acknowledged but lost: {lost[:5]}"
    twice = [name for name, found in ids.items() if len(found) > 1]
    assert not twice, f"duplicated: {twice[:5]}"
    running = [run_id for run_id in storm.cancelled if states[run_id] is not RunState.CANCELLED]
    assert not running, f"cancelled, but {running[:5]}"
