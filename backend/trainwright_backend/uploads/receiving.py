"""Bytes of uploads on their way to the disk.

A request's bytes go to the upload's own file, one block written and hashed in a thread while the next one arrives;
memory is a few blocks a request. The row's offset follows the disk: it moves after an fsync only, at the end of a
request, when the connection breaks, and every `SAVE_BYTES`. What the file has beyond it does not count and is cut off
by the next request. When all bytes are here, the file becomes an object under a second name, then the row complete,
then the first name goes; a crash in between costs the last stretch and no more.

One request writes at a time: in this process a newer one ends the older one, whose connection is dead most likely;
between processes a lock on the file decides, and goes with its process.
"""

import asyncio
import fcntl
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from errno import EDQUOT, ENOSPC
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from uuid import UUID

from starlette.requests import ClientDisconnect

from trainwright_backend.core.db import Database
from trainwright_backend.core.doomed import doom_unless_spared
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.ids import new_id
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.uploads import refusals
from trainwright_backend.uploads.service import (
    OBJECT_NAME,
    advance,
    complete,
    drop_upload,
    find_upload,
    object_folder,
    without_open_upload,
)
from trainwright_backend.uploads.tables import Upload
from trainwright_backend.uploads.transfer import Interrupted, Mark, OpenUpload, Sent, Transfer

if TYPE_CHECKING:
    from hashlib import _Hash

SAVE_BYTES = 64 << 20
"""At most so many bytes are sent again after a crash of the server."""

HANDOVER_SECONDS = 10.0
"""How long a request waits for the one before it to end."""

HASHES_KEPT = 256
"""Uploads between two requests whose hash goes on where it stood; the file of others is read again at the end."""

THREADS = 8
"""For the disk and the hashes of all uploads: the rest of the server has its own."""

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Position:
    """What of an upload is safe now."""

    offset: int
    expires: datetime


class Receiver:
    """Takes uploads' bytes for one server process."""

    def __init__(self, database: Database, store: LocalStore) -> None:
        self._database = database
        self._store = store
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="uploads")
        self._transfers: dict[UUID, Transfer] = {}
        self._hashes: OrderedDict[UUID, tuple[int, _Hash]] = OrderedDict()
        self._lock = threading.Lock()

    async def receive(self, team_id: UUID, upload: str, upload_id: UUID, sent: Sent) -> Position:
        """Add the bytes of ``sent`` to an upload.

        Raises:
            NotFound: the team has no such upload (any more).
            AppError: 409 and where to go on, 413 for more bytes than were announced, 423 when another process has the
                upload, 460 when the checksum differs, 507 when the disk is full.
        """
        await self._in_thread(self.position, team_id, upload)  # others must not end the team's requests
        transfer = Transfer()
        await self._take_over(upload_id, transfer)
        try:
            file = await self._in_thread(self._open, team_id, upload, upload_id, sent)
            try:
                if not file.is_complete:
                    await self._add(file, sent, transfer)
            finally:
                file.close()
            return await self._in_thread(self.position, team_id, upload)
        except OSError as error:
            if error.errno in (ENOSPC, EDQUOT):
                raise refusals.disk_full() from error
            raise
        finally:
            self._transfers.pop(upload_id)
            transfer.over.set()

    async def stop(self, upload_id: UUID) -> None:
        """End the request that brings bytes of this upload here now, if there is one.

        Whether the upload is the caller's is for the caller to know.
        """
        transfer = Transfer()
        await self._take_over(upload_id, transfer)
        self._transfers.pop(upload_id)
        transfer.over.set()

    def position(self, team_id: UUID, upload: str) -> Position:
        """What of an upload is safe."""
        with self._database.read() as session:
            row = find_upload(session, team_id, upload)
            return Position(row.offset, row.expires)

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False)

    async def _take_over(self, upload_id: UUID, transfer: "Transfer") -> None:
        deadline = asyncio.get_running_loop().time() + HANDOVER_SECONDS
        while (older := self._transfers.setdefault(upload_id, transfer)) is not transfer:
            older.end()
            while not older.over.is_set():
                if asyncio.get_running_loop().time() > deadline:
                    raise refusals.taken()
                await asyncio.sleep(0.01)

    def _open(self, team_id: UUID, upload: str, upload_id: UUID, sent: Sent) -> "OpenUpload":
        """The upload's file, locked, cut to what is safe; checked against the row as it is under the lock."""
        with self._database.read() as session:
            row = find_upload(session, team_id, upload)
        if row.stored_file_id is not None:
            return OpenUpload(-1, row, sent, None)
        handle = os.open(self._store.partial_path(upload_id), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(handle)
            with self._database.read() as session:
                row = find_upload(session, team_id, upload)
            file = OpenUpload(handle, row, sent, self._hash_at(upload_id, row.offset))
            if not file.is_complete and os.fstat(handle).st_size < row.offset:
                self._lost(row)
            if not file.is_complete:
                os.ftruncate(handle, row.offset)
            return file
        except BaseException:
            os.close(handle)
            raise

    def _hash_at(self, upload_id: UUID, offset: int) -> "_Hash | None":
        if offset == 0:
            return hashlib.sha256()
        with self._lock:
            at, found = self._hashes.get(upload_id, (-1, None))
            return found.copy() if at == offset and found is not None else None

    def _lost(self, row: Upload) -> None:
        with self._database.write() as session:
            drop_upload(session, row.team_id, row.id)
        raise AppError(
            "upload_lost",
            410,
            f"The server's disk has less of {row.file_name!r} than was stored. Send the file again from its start.",
        )

    async def _add(self, file: "OpenUpload", sent: Sent, transfer: "Transfer") -> None:
        try:
            await self._pour(file, sent, transfer)
        except (ClientDisconnect, Interrupted, asyncio.CancelledError) as broken:
            if sent.checksum is None and file.position < file.bytes:
                await self._in_thread(self._save, file, file.mark())
            if not isinstance(broken, Interrupted):
                raise
            raise refusals.interrupted(transfer.is_replaced, transfer.idle_seconds) from None
        if not file.has_checksum():
            raise refusals.checksum_differs(file.row.file_name)
        if file.position == file.bytes:
            await self._in_thread(self._complete, file)
        else:
            await self._in_thread(self._save, file, file.mark())

    async def _pour(self, file: "OpenUpload", sent: Sent, transfer: "Transfer") -> None:
        """Write the body as it comes: a block is written and hashed while the next one arrives."""
        writing: asyncio.Future[None] | None = None
        saving: asyncio.Future[None] | None = None
        try:
            async for block in transfer.blocks(sent.body):
                if writing is not None:
                    await _settled(writing)
                file.admit(sum(map(len, block)))
                if sent.checksum is None and file.position - file.marked >= SAVE_BYTES:
                    if saving is not None:
                        await _settled(saving)
                    saving = self._start(self._save, file, file.mark())
                writing = self._start(file.write, block)
        finally:
            under_way = [work for work in (writing, saving) if work is not None]
            for result in await _settled(asyncio.gather(*under_way, return_exceptions=True)):
                if isinstance(result, BaseException):
                    raise result

    def _save(self, file: "OpenUpload", mark: "Mark") -> None:
        """Make the bytes up to ``mark`` safe, then say so in the row."""
        if mark.position == file.safe:
            return
        file.sync()
        with self._database.write() as session:
            advance(session, file.row.id, file.safe, mark.position)
        file.safe = mark.position
        self._keep_hash(file.row.id, mark)

    def _keep_hash(self, upload_id: UUID, mark: "Mark") -> None:
        with self._lock:
            self._hashes.pop(upload_id, None)
            if mark.hash is not None:
                self._hashes[upload_id] = (mark.position, mark.hash)
            while len(self._hashes) > HASHES_KEPT:
                self._hashes.popitem(last=False)

    def _complete(self, file: "OpenUpload") -> None:
        """Make an object of the file, and the upload complete; the same bytes are stored once a team."""
        file.sync()
        digest = file.digest()
        team_id, upload_id, stored_file_id = file.row.team_id, file.row.id, new_id()
        folder = object_folder(team_id, stored_file_id)
        with self._database.write() as session:
            is_complete = complete(session, team_id, upload_id, digest, None)
            if not is_complete:
                doom_unless_spared(session, folder)
        if not is_complete:
            self._store.link_partial(upload_id, f"{folder}/{OBJECT_NAME}")
            with self._database.write() as session:
                complete(session, team_id, upload_id, digest, stored_file_id)
        with self._lock:
            self._hashes.pop(upload_id, None)
        self._store.drop_partial(upload_id)

    def _start(
        self, work: Callable[Arguments, Result], *args: Arguments.args, **named: Arguments.kwargs
    ) -> "asyncio.Future[Result]":
        return asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args, **named))

    async def _in_thread(
        self, work: Callable[Arguments, Result], *args: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        return await _settled(self._start(work, *args, **named))


def sweep_partials(database: Database, store: LocalStore) -> None:
    """Delete the bytes of uploads that are complete or gone."""
    lying = store.list_partials()
    if not lying:
        return
    with database.read() as session:
        unused = without_open_upload(session, lying)
    for upload_id in unused:
        store.drop_partial(upload_id)


async def _settled(work: "asyncio.Future[Result]") -> Result:
    """The result of a thread's work. It uses an open file, so it is waited for even when the request is cancelled."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return work.result()


def _lock(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise refusals.taken() from None
