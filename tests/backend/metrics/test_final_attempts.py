"""Exactly the points of the final attempts remain, whatever is posted, repeated, reordered and rewound.

The model is a plain dictionary. Batches are posted over HTTP, curves are requested as charts do, and streams
are read from a real socket that disconnects after any number of bytes while the run continues.
"""

import json
import math
import random
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.backend.scripted_agent import Scene, Work
from trainwright_backend.core import sse
from trainwright_backend.local.platform import bind_socket
from trainwright_backend.metrics import batch_ingest, metric_stream, writing

TOGETHER = (("loss",), ("grad_norm",), ("fp8_amax/a:input", "fp8_amax/b:input"), ("validation_loss",))
"""Series of tensors are measured in the same steps."""
NAMES = tuple(name for names in TOGETHER for name in names)
Curves = dict[str, dict[int, float]]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and pages of a few points, so that short sequences have many of them."""
    monkeypatch.setattr(writing, "CHUNK_POINTS", 7)
    monkeypatch.setattr(writing, "CHUNK_POINTS_OF_TENSOR", 3)
    monkeypatch.setattr(metric_stream, "PAGE_POINTS", 12)
    monkeypatch.setattr(sse, "POLL_SECONDS", 0.05)


@pytest.fixture
def address(app: FastAPI) -> Iterator[tuple[str, int]]:
    """The application on a real socket."""
    listener = bind_socket("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    yield listener.getsockname()
    server.should_exit = server.force_exit = True
    thread.join()


@dataclass
class Model:
    """The expected points."""

    curves: Curves = field(default_factory=lambda: {name: {} for name in NAMES})
    lasts: dict[str, int] = field(default_factory=dict)
    """Last step of each series in the current attempt."""

    def post(self, blocks: list[dict[str, Any]]) -> None:
        for block in blocks:
            for name, values in block["series"].items():
                for step, value in zip(block["steps"], values, strict=True):
                    if math.isfinite(float(value)) and step > self.lasts.get(name, 0):
                        self.lasts[name] = step
                        self.curves[name][step] = float(value)

    def rewind(self, step: int) -> None:
        self.lasts = {}
        for name, curve in self.curves.items():
            self.curves[name] = {at: value for at, value in curve.items() if at <= step}


@dataclass
class Poster:
    """Sends a random sequence for one run, and updates the model."""

    scene: Scene
    rng: random.Random
    work: Work
    model: Model = field(default_factory=Model)
    resumed_at: int = 0
    sent: list[dict[str, Any]] = field(default_factory=list)

    def blocks(self) -> list[dict[str, Any]]:
        made = []
        at = max([self.resumed_at, *self.model.lasts.values()]) + self.rng.randrange(-2, 4)
        for _ in range(self.rng.randrange(1, 4)):
            steps = [at := at + self.rng.choice((0, 1, 1, 1, 5, -2)) for _ in range(self.rng.randrange(1, 9))]
            steps = [max(step, self.resumed_at + 1) for step in steps]
            chosen = self.rng.sample(TOGETHER, self.rng.randrange(1, len(TOGETHER)))
            series = {name: [self.value(name) for _ in steps] for names in chosen for name in names}
            made.append({"steps": steps, "series": series})
        return made

    def value(self, name: str) -> float | str:
        return "NaN" if "/" not in name and self.rng.random() < 0.05 else round(self.rng.uniform(-9, 9), 3)

    def post(self) -> None:
        blocks = self.blocks()
        batch = self.work.batch(metrics=blocks)
        if self.rng.random() < 0.3:  # the next one overtakes it
            ahead = {**batch, "offset": batch["next_offset"], "next_offset": batch["next_offset"] + 9}
            assert self.work.send(ahead).status_code == 409
        assert self.work.send(batch).status_code == 200
        self.sent.append(batch)
        self.model.post(blocks)

    def repeat(self) -> None:
        if self.sent:
            response = self.work.send(self.rng.choice(self.sent))
            assert response.status_code == 409, response.text

    def rewind(self) -> None:
        assert self.work.ended("crashed") == "retry_wait"
        old, self.work = self.work, self.scene.again(self.work.run_id)
        self.resumed_at = self.rng.randrange(0, 40)
        self.work.begin(self.resumed_at)
        self.model.rewind(self.resumed_at)
        late = old.send(old.batch(metrics=[{"steps": [999], "series": {"loss": [1.0]}}]))
        assert late.status_code == 409

    def act(self, actions: list[str]) -> None:
        for action in actions:
            getattr(self, action)()
        self.scene.cancel(self.work.run_id)
        assert self.work.ended("cancelled") == "cancelled"


def begin(scene: Scene, seed: int) -> Poster:
    work = scene.start()
    assert work.order("starting") == "go"
    work.begin()
    assert work.order("running") == "go"
    return Poster(scene, random.Random(seed), work)


def shown(scene: Scene, run_id: str, **query: Any) -> Curves:
    params = {"names": list(NAMES)} | query
    response = scene.site.admin.get(f"{scene.runs}/{run_id}/metrics", params=params)
    assert response.status_code == 200, response.text
    curves: Curves = {name: {} for name in NAMES}
    for item in response.json()["series"]:
        assert item["steps"] == sorted(set(item["steps"]))
        curves[item["name"]] = dict(zip(item["steps"], item["values"], strict=True))
    return curves


ACTIONS = st.lists(
    st.sampled_from(["post", "post", "post", "repeat", "rewind"]), min_size=2, max_size=14
).filter(lambda actions: actions.count("rewind") <= 2)  # a third crash without a checkpoint fails the run
SOME = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),  # a sequence takes seconds, so a failing one is reported without shrinking
    suppress_health_check=list(HealthCheck),
    database=None,
)


def check_any_sequence(scene: Scene, examples: int = 8) -> None:
    @settings(SOME, max_examples=examples)
    @given(ACTIONS, st.integers(0, 2**32))
    def check(actions: list[str], seed: int) -> None:
        teller = begin(scene, seed)
        teller.act(actions)
        curves = teller.model.curves
        assert shown(scene, teller.work.run_id) == curves
        after, last = sorted((teller.rng.randrange(40), teller.rng.randrange(40)))
        within = {n: {s: v for s, v in c.items() if after < s <= last} for n, c in curves.items()}
        assert shown(scene, teller.work.run_id, after_step=after, to_step=last) == within

    check()


@pytest.mark.slow(target="databases")
def test_any_sequence_leaves_the_points_of_the_final_attempts(scene: Scene) -> None:
    check_any_sequence(scene)


@pytest.mark.slow(target="databases")
def test_a_rewind_that_skips_short_chunks_is_detected(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    real = writing.rewind

    def forgetful(session: Any, run_id: Any, step: int) -> None:
        real(session, run_id, step + 3)

    monkeypatch.setattr(batch_ingest, "rewind", forgetful)
    with pytest.raises(AssertionError):
        check_any_sequence(scene, 30)


class DisconnectingReader:
    """Follows a stream over a connection that drops after any number of bytes; has a chart's points."""

    def __init__(self, address: tuple[str, int], path: str, key: str, rng: random.Random) -> None:
        self.curves: Curves = {name: {} for name in NAMES}
        self.connections = 0
        self._address, self._rng = address, rng
        headers = {"Host": "127.0.0.1", "Authorization": key, "Connection": "close"}
        self._head = f"GET {path} HTTP/1.1\r\n" + "".join(f"{name}: {it}\r\n" for name, it in headers.items())
        self._id = ""

    def read_all(self) -> None:
        while not self._read_some(self._rng.choice((700, 2_000, 5_000, 2**30))):
            pass

    def _read_some(self, most: int) -> bool:
        """One connection; true when the stream itself has ended."""
        self.connections += 1
        with socket.create_connection(self._address, timeout=30) as connection:
            going_on = f"Last-Event-ID: {self._id}\r\n" if self._id else ""
            connection.sendall(f"{self._head}{going_on}\r\n".encode())
            content, limit = b"", self._rng.randrange(400, 400 + most)
            while len(content) < limit:
                piece = connection.recv(min(4_096, limit - len(content)))
                if not piece:
                    break
                content += piece
            is_whole = not piece
        head, _, body = content.partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head.lower() or not body
        for block in unchunked(body).decode("utf-8", "ignore").split("\n\n")[:-1]:
            self._take(dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":")))
        return is_whole

    def _take(self, event: dict[str, str]) -> None:
        self._id = event.get("id", self._id)
        if event.get("event") == "rewind":
            step = json.loads(event["data"])["step"]
            self.curves = {n: {s: v for s, v in c.items() if s <= step} for n, c in self.curves.items()}
        elif event.get("event") == "points":
            data = json.loads(event["data"])
            for name, values in data["series"].items():
                again = self.curves[name].keys() & set(data["steps"])
                assert not again, f"{name} {sorted(again)} came twice"
                self.curves[name].update(zip(data["steps"], values, strict=True))


def unchunked(body: bytes) -> bytes:
    """The content of a chunked body that may be truncated anywhere."""
    found = b""
    while body:
        size, end, body = body.partition(b"\r\n")
        length = int(size, 16) if end else 0
        found += body[:length]
        body = body[length + len(end) :]
    return found


def followed(scene: Scene, address: tuple[str, int], seed: int, actions: list[str]) -> tuple[Curves, Curves]:
    """The expected points, and those of a reader whose connection keeps dropping while the run continues."""
    teller = begin(scene, seed)
    names = "&".join(f"names={name}" for name in NAMES)
    path = f"{scene.runs}/{teller.work.run_id}/metrics/stream?{names}"
    reader = DisconnectingReader(
        address, path, scene.site.admin.headers["Authorization"], random.Random(seed + 1)
    )
    thread = _Thread(reader.read_all)
    teller.act(actions)
    thread.finish()
    return teller.model.curves, reader.curves


class _Thread:
    def __init__(self, work: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive(), "the stream does not end"
        if self._error is not None:
            raise self._error


@pytest.mark.slow(target="databases")
def test_a_reader_interrupted_anywhere_gets_each_point_once(scene: Scene, address: tuple[str, int]) -> None:
    @SOME
    @given(ACTIONS, st.integers(0, 2**32))
    def check(actions: list[str], seed: int) -> None:
        expected, read = followed(scene, address, seed, actions)
        assert read == expected

    check()
