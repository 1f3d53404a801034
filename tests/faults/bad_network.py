"""A TCP proxy that behaves like a bad network: slow, in small pieces, with connections that break or fall silent."""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

BLOCK_BYTES = 1 << 16
READING_SECONDS = 0.05
"""Between the last bytes and a reset, which would discard bytes that the other end has not read."""

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER: closing the socket sends RST."""


@dataclass(frozen=True)
class Quality:
    """How the network treats new connections."""

    latency_seconds: tuple[float, float] = (0.0, 0.0)
    """Each block is late by a random time in this range."""

    block_bytes: int = BLOCK_BYTES
    """Bytes that arrive together."""

    bytes_per_second: float = float("inf")
    """In each direction of a connection."""

    broken: float = 0.0
    """Share of connections that are reset after a random number of the server's bytes, up to ``broken_bytes``."""

    broken_bytes: int = 20_000

    silent: float = 0.0
    """Share of connections whose requests arrive, and whose answers never do."""


class BadNetwork:
    """A proxy to one server, in a thread. ``quality`` may be changed while it runs."""

    def __init__(self, server: str, seed: int) -> None:
        parts = urlsplit(server)
        self._server = (parts.hostname, parts.port)
        self._random = random.Random(seed)
        self.quality = Quality()
        self.connections = 0
        """Accepted so far."""
        self.disturbed = 0
        """Connections that were broken or silent."""
        self.open: set[asyncio.Task[None]] = set()
        """Connections that are open now."""
        self.url = ""

    @contextmanager
    def running(self) -> Iterator["BadNetwork"]:
        ready = threading.Event()
        loop = asyncio.new_event_loop()
        stop = asyncio.Event()

        async def serve() -> None:
            listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            ready.set()
            await stop.wait()
            listener.close()
            for task in self.open:
                task.cancel()
            await asyncio.gather(*self.open, return_exceptions=True)

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        quality = self.quality
        draw = self._random.random()
        silent = draw < quality.silent
        broken = not silent and draw < quality.silent + quality.broken
        self.disturbed += silent or broken
        limit = self._random.randrange(quality.broken_bytes) if broken else None
        from_server, to_server = await asyncio.open_connection(*self._server)
        sending = asyncio.create_task(self._carry(reader, to_server, quality, None))
        try:
            if silent:
                await sending  # until the client gives up
            else:
                await self._carry(from_server, writer, quality, limit)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            to_server.close()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        quality: Quality,
        limit: int | None,
    ) -> None:
        """Carry bytes until the other end closes, or ``limit`` of them, and then reset the connection."""
        while block := await reader.read(quality.block_bytes):
            late_seconds = self._random.uniform(*quality.latency_seconds)
            await asyncio.sleep(late_seconds + len(block) / quality.bytes_per_second)
            if limit is not None and len(block) > limit:
                writer.write(block[:limit])
                await writer.drain()
                await asyncio.sleep(READING_SECONDS)
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                writer.transport.abort()
                return
            limit = None if limit is None else limit - len(block)
            writer.write(block)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
