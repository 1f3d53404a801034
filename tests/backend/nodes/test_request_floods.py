"""A flood of requests does not delay nodes, and delays other people only briefly."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient

from tests.backend.auth.test_sign_in import sign_in
from tests.backend.scripted_agent import Scene
from trainwright.contracts.api.people import Me
from trainwright_backend.auth import passwords, service

MANY = 60
"""More requests than the event loop has threads (40)."""


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """Threads and the connection pool are the same on both databases."""
    return sqlite_url


def test_a_flood_of_sign_ins_is_refused_and_delays_no_node(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(MANY) as threads, slow_hashes(monkeypatch):
        flood = [
            threads.submit(sign_in, scene.site.anonymous(), "wrong", f"nobody-{n}@x.example")
            for n in range(MANY)
        ]
        waiting = set(flood)
        while len(waiting) > 10:  # two are hashed, and eight of this address wait
            ended, waiting = wait(waiting, timeout=3, return_when=FIRST_COMPLETED)
            assert ended, "requests beyond the limit are refused immediately"
            assert {future.result() for future in ended} == {503}
        scene.agent.heartbeat()
        assert scene.site.admin.get(scene.runs).status_code == 200
        assert not any(future.done() for future in waiting), "it was answered while they still waited"
    assert {future.result() for future in waiting} == {401}


def test_a_flood_of_slow_requests_of_people_delays_no_node(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = scene.start()
    with ThreadPoolExecutor(MANY) as threads, slow_reads(monkeypatch) as running:
        flood = [threads.submit(read_me, scene) for _ in range(MANY)]
        for _ in range(20):  # so many of people's requests run at once
            assert running.acquire(timeout=30)
        scene.agent.heartbeat()
        assert work.order("starting") == "go"
        assert not any(future.done() for future in flood), "it was answered while they still waited"
        assert not running.acquire(blocking=False)
    assert {future.result() for future in flood} == {200}


def read_me(scene: Scene) -> int:
    headers = {"Authorization": scene.site.admin.headers["Authorization"]}
    return scene.site.anonymous().get("/api/v1/me", headers=headers).status_code


@pytest.mark.slow(target="databases")
def test_many_concurrent_requests_are_all_answered(scene: Scene) -> None:
    """Requests that hold a connection while they wait for a thread would exhaust both, and wait for each other."""

    async def read_all() -> list[int]:
        transport, key = ASGITransport(scene.site.app), scene.site.admin.headers["Authorization"]
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            reads = [client.get(scene.runs, headers={"Authorization": key}) for _ in range(2 * MANY)]
            return [response.status_code for response in await asyncio.gather(*reads)]

    assert scene.site.app.state.portal.call(read_all) == [200] * 2 * MANY


@contextmanager
def slow_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """During the block, no request for one's own account ends. The semaphore counts those that run."""
    released, running, read = threading.Event(), threading.Semaphore(0), service.me

    def wait_and_read(*given: Any) -> Me:
        running.release()
        assert released.wait(60)
        return read(*given)

    monkeypatch.setattr(service, "me", wait_and_read)
    try:
        yield running
    finally:
        released.set()


@contextmanager
def slow_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """During the block, no check of a password ends."""
    released = threading.Event()
    monkeypatch.setattr(passwords._hasher, "verify", lambda password, hashed: not released.wait(60))
    try:
        yield
    finally:
        released.set()
