"""One request's bytes: the body as it comes, which others may end, and the open file that it goes to.

Who may open the file, and what its bytes mean for the upload, is `receiving`'s.
"""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from trainwright_backend.uploads import refusals
from trainwright_backend.uploads.protocol import CHECKSUMS, Checksum
from trainwright_backend.uploads.tables import Upload

if TYPE_CHECKING:
    from hashlib import _Hash

BLOCK_BYTES = 1 << 20
IDLE_SECONDS = 60.0
"""A connection that brings no byte for so long is dropped."""


@dataclass(frozen=True)
class Sent:
    """One request's bytes."""

    offset: int
    body: AsyncIterator[bytes]
    length: int | None
    """As announced, if it was."""

    checksum: Checksum | None = None


class Interrupted(Exception):  # noqa: N818 (no error: the bytes that came are kept)
    """The body ends here, because nothing came or a newer request took over."""


@dataclass(frozen=True)
class Mark:
    """A position in a file, and the hash up to it where it is known."""

    position: int
    hash: "_Hash | None"


class OpenUpload:
    """The open file of an upload, during one request."""

    def __init__(self, handle: int, row: Upload, sent: Sent, running: "_Hash | None") -> None:
        if sent.offset != row.offset:
            raise refusals.wrong_offset(row, sent.offset)
        self._handle = handle
        self._running = running
        self._expected = sent.checksum
        self._own = CHECKSUMS[sent.checksum.algorithm]() if sent.checksum is not None else None
        self.row = row
        self.bytes = row.bytes
        self.is_complete = row.stored_file_id is not None
        self.position = self.safe = self.marked = row.offset
        self.admit(sent.length or 0)

    def admit(self, count: int) -> None:
        """Refuse bytes beyond the announced size."""
        if self.position + count > self.bytes:
            raise refusals.too_many(self.row)

    def write(self, block: list[bytes]) -> None:
        data = b"".join(block)
        view = memoryview(data)
        at = self.position
        while view:
            written = os.pwrite(self._handle, view, at)
            at, view = at + written, view[written:]
        for running in (self._running, self._own):
            if running is not None:
                running.update(data)
        self.position = at

    def mark(self) -> Mark:
        """Where the file stands, while nobody writes to it."""
        self.marked = self.position
        return Mark(self.position, None if self._running is None else self._running.copy())

    def sync(self) -> None:
        os.fdatasync(self._handle)

    def has_checksum(self) -> bool:
        """Whether the request's bytes are what it announced, if it did."""
        return self._expected is None or self._own is None or self._own.digest() == self._expected.digest

    def digest(self) -> str:
        """SHA-256 of the whole file, in hex; it is read again when the hash did not run along."""
        if self._running is None:
            os.lseek(self._handle, 0, os.SEEK_SET)
            with open(self._handle, "rb", closefd=False) as content:
                self._running = hashlib.file_digest(content, "sha256")
        return self._running.hexdigest()

    def close(self) -> None:
        """Also ends the lock."""
        if self._handle >= 0:
            os.close(self._handle)


class Transfer:
    """One request's body, which others may end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Timeout | None = None
        self.is_replaced = False
        self.idle_seconds = IDLE_SECONDS
        self.over = threading.Event()

    def end(self) -> None:
        """Have the body end now; safe from any thread."""
        self.is_replaced = True
        with suppress(RuntimeError):  # its loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.reschedule(self._loop.time())

    async def blocks(self, body: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
        """The body in pieces of about a block; what came before it broke off is among them.

        Raises:
            ClientDisconnect: the connection broke.
            Interrupted: nothing came, or a newer request took over.
        """
        gathered: list[bytes] = []
        size = 0
        broken: Exception | None = None
        ended = False
        while not ended:
            try:
                piece = await self._next(body)
            except (ClientDisconnect, Interrupted) as error:
                piece, broken = None, error
            ended = piece is None
            if piece:
                gathered.append(piece)
                size += len(piece)
            if size >= BLOCK_BYTES or (ended and gathered):
                yield gathered
                gathered, size = [], 0
        if broken is not None:
            raise broken

    async def _next(self, body: AsyncIterator[bytes]) -> bytes | None:
        if self.is_replaced:
            raise Interrupted
        try:
            async with asyncio.timeout(self.idle_seconds) as self._waiting:
                return await anext(body, None)
        except TimeoutError:
            raise Interrupted from None
        finally:
            self._waiting = None
