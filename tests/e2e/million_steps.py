"""A run of a million steps that keeps growing: a scripted node sends its metrics and its log over HTTP.

It sends what an agent would, in fewer and larger messages. The machine's own node never gets the run, as it has no GPU.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, cast

import httpx
from fastapi.testclient import TestClient

from tests.backend.scripted_agent import Agent, Work, inventory
from tests.live import Live, end_runs, eventually, small_spec
from trainwright.client import TeamClient
from trainwright.contracts.api.datasets import Dataset

STEPS = 1_000_000
BATCH_STEPS = 20_000
SPARSE_STEPS = 100
"""Steps between two values of every metric but the loss: ten thousand values each."""

SPIKE_STEP = 654_321
SPIKE_LOSS = 15.0
NOTE_LINES = (250_000, 500_001, 999_000)
NODE = "far"
RENEW_SECONDS = 0.4
GROWTH_STEPS = 400


@contextmanager
def growing_run(live: Live, team: TeamClient, dataset: Dataset) -> Iterator[str]:
    """A run with `STEPS` stored steps that makes `GROWTH_STEPS` more in each round; yields its id."""
    with httpx.Client(base_url=live.platform.url, timeout=60.0) as client:
        agent = _join(live, client)
        run = team.submit(_spec(dataset, "million"))
        eventually(lambda: agent.heartbeat(), "the run is placed on the far node", 60)
        work = agent.claim(run.id)
        sender = Sender(work)
        sender.start()
        sender.send_all()
        done = threading.Event()
        thread = threading.Thread(target=sender.grow, args=(done,))
        thread.start()
        try:
            yield run.id
        finally:
            done.set()
            thread.join()
        end_runs(team)
        (node,) = (node for node in live.client.nodes() if node.name == NODE)
        live.client.delete(f"/nodes/{node.id}")
    assert sender.failure is None, sender.failure


def waiting_runs(team: TeamClient, dataset: Dataset, names: list[str]) -> None:
    """Runs that wait for a second GPU, so that the list has something to filter out."""
    for name in names:
        team.submit(_spec(dataset, name))


class Sender:
    """Sends the run's steps in order, and renews its lease in time."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.step = 0
        self.failure: str | None = None
        self._renewed = monotonic()

    def start(self) -> None:
        assert self.work.order("starting") == "go"
        self.work.begin()
        assert self.work.order("running") == "go"

    def send_all(self) -> None:
        while self.step < STEPS:
            self._send(min(STEPS, self.step + BATCH_STEPS))

    def grow(self, done: threading.Event) -> None:
        """Send some more steps a few times a second, until `done`."""
        try:
            while not done.wait(0.3):
                self._send(self.step + GROWTH_STEPS)
        except AssertionError as error:
            self.failure = str(error)

    def _send(self, last: int) -> None:
        steps = range(self.step + 1, last + 1)
        sent = self.work.send(self.work.batch(metrics=_metrics(steps)))
        assert sent.status_code == 200, sent.text
        logged = self.work.log("".join(map(_line, steps)).encode())
        assert logged.status_code == 200, logged.text
        self.step = last
        if monotonic() - self._renewed > RENEW_SECONDS:
            self._renewed = monotonic()
            self.work.agent.heartbeat()
            assert self.work.order("running") == "go"


def _join(live: Live, client: httpx.Client) -> Agent:
    token = live.client.create_join_token(NODE).token
    body = {"token": token, "name": NODE, "inventory": inventory(cpu_slots=0, gpus=1)}
    joined = client.post("/api/v1/agent/join", json=body)
    assert joined.status_code == 200, joined.text
    client.headers["Authorization"] = f"Bearer {joined.json()['node_token']}"
    agent = Agent(cast(TestClient, client), NODE)  # which is an `httpx.Client`, as this one
    agent.heartbeat()
    return agent


def _spec(dataset: Dataset, name: str) -> dict[str, Any]:
    resources = {"device": "cuda", "slots_per_node": 1}
    schedule = {"steps": 2 * STEPS, "warmup_steps": 100}
    return small_spec(dataset, name=name, resources=resources, schedule=schedule)


def _metrics(steps: range) -> list[dict[str, Any]]:
    """The loss of every step, and the other metrics of every hundredth."""
    sparse = [step for step in steps if step % SPARSE_STEPS == 0]
    rest = {
        "tokens": [512.0 * step for step in sparse],
        "tokens_per_second": [4_000.0 + 200 * math.sin(step / 7_000) for step in sparse],
        "seconds": [0.128] * len(sparse),
        "mfu": [0.38 + 0.02 * math.sin(step / 9_000) for step in sparse],
        "grad_norm": [0.9 + 0.3 * math.sin(step) for step in sparse],
    }
    losses = {"steps": list(steps), "series": {"loss": [_loss(step) for step in steps]}}
    return [losses, {"steps": sparse, "series": rest}] if sparse else [losses]


def _loss(step: int) -> float:
    """A falling curve with noise that repeats, and one spike."""
    if step == SPIKE_STEP:
        return SPIKE_LOSS
    return 2.0 + 8.0 / (1.0 + step / 2_000) + 0.2 * math.sin(step * 12.9898)


def _line(step: int) -> str:
    """One line of the log a step."""
    if step in NOTE_LINES:
        return f"step {step}: Gradient overflow, the step is skipped\n"
    return f"step {step}: loss {_loss(step):.4f}, 4,000 tokens/s\n"
