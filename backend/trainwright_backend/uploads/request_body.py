"""The body of an upload request, which a newer request may interrupt."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from starlette.requests import ClientDisconnect

from trainwright_backend.uploads.tus import Checksum

BLOCK_BYTES = 1 << 20
IDLE_SECONDS = 60.0
"""A connection without data for this long is closed."""


@dataclass(frozen=True)
class UploadRequest:
    """A request that uploads bytes."""

    offset: int
    body: AsyncIterator[bytes]
    length: int | None
    """The announced Content-Length, if any."""

    checksum: Checksum | None = None


class BodyInterruptedError(Exception):
    """The body ended early, because no data arrived or a newer request took over. The received bytes are kept."""


class RequestBody:
    """Reads the body of a request. Other requests may end it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout: asyncio.Timeout | None = None
        self.is_replaced = False
        self.idle_seconds = IDLE_SECONDS
        self.finished = threading.Event()

    def end(self) -> None:
        """End the body now. Safe to call from any thread."""
        self.is_replaced = True
        with suppress(RuntimeError):  # its loop was closed in the meantime
            self._loop.call_soon_threadsafe(self._expire)

    def _expire(self) -> None:
        if self._timeout is not None:
            self._timeout.reschedule(self._loop.time())

    async def blocks(self, body: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
        """The body in blocks of about `BLOCK_BYTES`. All bytes before an interruption are yielded.

        Raises:
            ClientDisconnect: the connection broke.
            BodyInterruptedError: no data arrived, or a newer request took over.
        """
        block: list[bytes] = []
        size = 0
        interruption: Exception | None = None
        ended = False
        while not ended:
            try:
                data = await self._next(body)
            except (ClientDisconnect, BodyInterruptedError) as error:
                data, interruption = None, error
            ended = data is None
            if data:
                block.append(data)
                size += len(data)
            if size >= BLOCK_BYTES or (ended and block):
                yield block
                block, size = [], 0
        if interruption is not None:
            raise interruption

    async def _next(self, body: AsyncIterator[bytes]) -> bytes | None:
        if self.is_replaced:
            raise BodyInterruptedError
        try:
            async with asyncio.timeout(self.idle_seconds) as self._timeout:
                return await anext(body, None)
        except TimeoutError:
            raise BodyInterruptedError from None
        finally:
            self._timeout = None
