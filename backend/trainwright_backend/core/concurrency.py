"""Limits on how many requests run at once, so that a flood of some requests cannot stall the rest.

Each kind of request has its own limit. Together they need fewer threads and connections than there are, so a running
request never waits for a thread while it uses a connection, and the requests of nodes always find both. Requests beyond
a limit wait in order of arrival; if too many wait, further ones are refused immediately.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum

from trainwright_backend.core.errors import Busy


class RequestKind(StrEnum):
    """Kinds of requests, each with a separate limit."""

    PEOPLE = "people"
    """All other requests."""

    AGENTS = "agents"
    """Requests of nodes: a late renewal ends an attempt."""

    SIGN_INS = "sign_ins"
    """Requests that hash a password, which takes long and 19 MiB."""

    PROVIDER = "provider"
    """Requests that wait for the identity provider."""


class ConcurrencyLimit:
    """How many requests of a kind run and wait at once.

    Args:
        running: requests that run at once.
        waiting: requests that wait at once.
        waiting_per_address: of these, requests from one client address.
        refusal: why further ones are refused, as code and sentence.
    """

    def __init__(
        self, running: int, waiting: int, waiting_per_address: int, refusal: tuple[str, str]
    ) -> None:
        self._running = asyncio.Semaphore(running)
        self._limit, self._limit_per_address = waiting, waiting_per_address
        self._refusal = refusal
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[None]:
        """Wait for a place for a request from ``address``, and keep it during the block.

        Raises:
            Busy: too many requests wait already.
        """
        if self._running.locked() and (
            self._waiting.total() >= self._limit or self._waiting[address] >= self._limit_per_address
        ):
            raise Busy(*self._refusal)
        self._waiting[address] += 1
        try:
            await self._running.acquire()
        finally:
            self._waiting[address] -= 1
            self._waiting += Counter()  # drops addresses without waiting requests
        try:
            yield
        finally:
            self._running.release()


_BUSY = ("server_busy", "The server has more requests than it can answer. Try again in a moment.")
_SIGN_IN_BUSY = ("sign_in_busy", "Too many people are signing in right now. Try again in a moment.")


def concurrency_limits() -> dict[RequestKind, ConcurrencyLimit]:
    """The limits of a server process, for the running event loop.

    34 of the event loop's 40 threads, which leaves some for uploads and downloads; the pool has 40 connections too.
    """
    return {
        RequestKind.PEOPLE: ConcurrencyLimit(20, 200, 100, _BUSY),
        RequestKind.AGENTS: ConcurrencyLimit(8, 2_000, 200, _BUSY),
        RequestKind.SIGN_INS: ConcurrencyLimit(2, 16, 8, _SIGN_IN_BUSY),
        RequestKind.PROVIDER: ConcurrencyLimit(4, 32, 8, _SIGN_IN_BUSY),
    }
