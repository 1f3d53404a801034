"""Receiving the bytes of uploads.

A request's bytes go to the upload's own file, or to segments in a bucket. A thread writes and hashes one block while the next one
arrives, so a request needs the memory of a few blocks. The row's offset follows the disk: it advances only after a sync, at the
end of a request, when the connection breaks, and every `SAVE_BYTES`. Bytes beyond the offset do not count, and the next request truncates
them. When all bytes have arrived, the file becomes an object by a second link, then the row is completed, and then the
first link is removed. A crash in between costs only the bytes since the last save point.

One request writes to an upload at a time. Within this process, a newer request ends the older one, whose connection is
probably dead. Between processes, a lock on the file decides, which ends with its process; in a bucket, the row's offset does.
"""

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from errno import EDQUOT, ENOSPC
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from uuid import UUID

from starlette.requests import ClientDisconnect

from trainwright_backend.core.db import Database
from trainwright_backend.core.deletion_queue import queue_deletion_unless_kept
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.ids import new_id
from trainwright_backend.core.object_store import ObjectStore, UploadInUseError
from trainwright_backend.uploads import errors
from trainwright_backend.uploads.partial_file import PartialFile, SavePoint
from trainwright_backend.uploads.request_body import BodyInterruptedError, RequestBody, UploadRequest
from trainwright_backend.uploads.service import (
    OBJECT_NAME,
    advance,
    complete,
    delete_upload,
    find_segments,
    find_upload,
    object_folder,
    without_open_upload,
)
from trainwright_backend.uploads.tables import Upload

if TYPE_CHECKING:
    from hashlib import _Hash

SAVE_BYTES = 64 << 20
"""The most bytes that must be sent again after a crash of the server."""

HANDOVER_SECONDS = 10.0
"""How long a request waits for the previous one to end."""

MAX_CACHED_HASHES = 256
"""Uploads whose running hash is cached between requests. Other files are read again at the end."""

THREADS = 8
"""Threads for disk writes and hashes of all uploads. The rest of the server has its own."""

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class UploadProgress:
    """The bytes of an upload that are safe."""

    offset: int
    expires: datetime


class Receiver:
    """Receives the bytes of uploads in one server process."""

    def __init__(self, database: Database, store: ObjectStore) -> None:
        self._database = database
        self._store = store
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="uploads")
        self._bodies: dict[UUID, RequestBody] = {}
        self._hashes: OrderedDict[UUID, tuple[int, _Hash]] = OrderedDict()
        self._lock = threading.Lock()

    async def receive(
        self, team_id: UUID, upload: str, upload_id: UUID, request: UploadRequest
    ) -> UploadProgress:
        """Add the bytes of ``request`` to an upload.

        Raises:
            NotFound: the team has no such upload.
            AppError: 409 for a wrong offset, 413 for more bytes than announced, 423 if another process writes to the
                upload, 460 if the checksum does not match, 507 if the disk is full.
        """
        await self._in_thread(
            self.position, team_id, upload
        )  # other teams must not interrupt requests of this one
        body = RequestBody()
        await self._take_over(upload_id, body)
        try:
            file = await self._in_thread(self._open, team_id, upload, upload_id, request)
            try:
                if not file.is_complete:
                    await self._add(file, request, body)
            finally:
                await self._in_thread(file.close)
            return await self._in_thread(self.position, team_id, upload)
        except OSError as error:
            if error.errno in (ENOSPC, EDQUOT):
                raise errors.disk_full() from error
            raise
        finally:
            self._bodies.pop(upload_id)
            body.finished.set()

    async def stop(self, upload_id: UUID) -> None:
        """End the request that uploads bytes now, if there is one. The caller checks that the upload is theirs."""
        body = RequestBody()
        await self._take_over(upload_id, body)
        self._bodies.pop(upload_id)
        body.finished.set()

    def position(self, team_id: UUID, upload: str) -> UploadProgress:
        """The progress of an upload."""
        with self._database.read() as session:
            row = find_upload(session, team_id, upload)
            return UploadProgress(row.offset, row.expires)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False)

    async def _take_over(self, upload_id: UUID, body: "RequestBody") -> None:
        deadline = asyncio.get_running_loop().time() + HANDOVER_SECONDS
        while (older := self._bodies.setdefault(upload_id, body)) is not body:
            older.end()
            while not older.finished.is_set():
                if asyncio.get_running_loop().time() > deadline:
                    raise errors.upload_busy()
                await asyncio.sleep(0.01)

    def _open(self, team_id: UUID, upload: str, upload_id: UUID, request: UploadRequest) -> "PartialFile":
        """Open and lock the upload's file, check it against the row, and truncate it to the safe bytes."""
        with self._database.read() as session:
            row = find_upload(session, team_id, upload)
        if row.stored_file_id is not None:
            return PartialFile(None, row, request, None)
        with ExitStack() as on_error:
            try:
                content = self._store.open_upload(upload_id)
            except UploadInUseError:
                raise errors.upload_busy() from None
            on_error.callback(content.close)
            with self._database.read() as session:
                row = find_upload(session, team_id, upload)
                segments = find_segments(session, upload_id)
            file = PartialFile(content, row, request, self._hash_at(upload_id, row.offset))
            if not file.is_complete and not content.resume(row.offset, segments):
                self._drop_lost(row)
            on_error.pop_all()
            return file

    def _hash_at(self, upload_id: UUID, offset: int) -> "_Hash | None":
        if offset == 0:
            return hashlib.sha256()
        with self._lock:
            at, found = self._hashes.get(upload_id, (-1, None))
            return found.copy() if at == offset and found is not None else None

    def _drop_lost(self, row: Upload) -> None:
        with self._database.write() as session:
            delete_upload(session, row.team_id, row.id)
        raise AppError(
            "upload_lost",
            410,
            f"The server's disk has less of {row.file_name!r} than was stored. Send the file again from its start.",
        )

    async def _add(self, file: "PartialFile", request: UploadRequest, body: "RequestBody") -> None:
        try:
            await self._write_body(file, request, body)
        except (ClientDisconnect, BodyInterruptedError, asyncio.CancelledError) as interruption:
            if request.checksum is None and file.position < file.bytes:
                await self._in_thread(self._save, file, file.save_point())
            if not isinstance(interruption, BodyInterruptedError):
                raise
            raise errors.interrupted(body.is_replaced, body.idle_seconds) from None
        if not file.matches_checksum():
            raise errors.checksum_mismatch(file.row.file_name)
        if file.position == file.bytes:
            await self._in_thread(self._complete, file)
        else:
            await self._in_thread(self._save, file, file.save_point())

    async def _write_body(self, file: "PartialFile", request: UploadRequest, body: "RequestBody") -> None:
        """Write the body as it arrives: one block is written and hashed while the next one arrives."""
        writing: asyncio.Future[None] | None = None
        saving: asyncio.Future[None] | None = None
        try:
            async for block in body.blocks(request.body):
                if writing is not None:
                    await _settled(writing)
                file.admit(sum(map(len, block)))
                if request.checksum is None and file.position - file.last_save_point >= SAVE_BYTES:
                    if saving is not None:
                        await _settled(saving)
                    saving = self._start(self._save, file, file.save_point())
                writing = self._start(file.write, block)
        finally:
            pending = [work for work in (writing, saving) if work is not None]
            for result in await _settled(asyncio.gather(*pending, return_exceptions=True)):
                if isinstance(result, BaseException):
                    raise result

    def _save(self, file: "PartialFile", save_point: "SavePoint") -> None:
        """Sync the bytes before ``save_point``, then advance the row's offset."""
        if save_point.position == file.safe:
            return
        segment = file.save()
        with self._database.write() as session:
            advance(session, file.row.id, file.safe, save_point.position, segment)
        file.safe = save_point.position
        self._cache_hash(file.row.id, save_point)

    def _cache_hash(self, upload_id: UUID, save_point: "SavePoint") -> None:
        with self._lock:
            self._hashes.pop(upload_id, None)
            if save_point.hash is not None:
                self._hashes[upload_id] = (save_point.position, save_point.hash)
            while len(self._hashes) > MAX_CACHED_HASHES:
                self._hashes.popitem(last=False)

    def _complete(self, file: "PartialFile") -> None:
        """Turn the file into an object and complete the upload. A team's identical files are stored once."""
        file.save_point()
        file.save()
        digest = file.digest()
        team_id, upload_id, stored_file_id = file.row.team_id, file.row.id, new_id()
        folder = object_folder(team_id, stored_file_id)
        with self._database.write() as session:
            is_complete = complete(session, team_id, upload_id, digest, None)
            if not is_complete:
                queue_deletion_unless_kept(session, folder)
        if not is_complete:
            file.publish(f"{folder}/{OBJECT_NAME}")
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


def sweep_partials(database: Database, store: ObjectStore) -> None:
    """Delete the partial files of uploads that are complete or deleted."""
    upload_ids = store.list_partials()
    if not upload_ids:
        return
    with database.read() as session:
        unused = without_open_upload(session, upload_ids)
    for upload_id in unused:
        store.drop_partial(upload_id)


async def _settled(work: "asyncio.Future[Result]") -> Result:
    """Wait for a thread's result even if the request is cancelled, because the thread uses an open file."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return work.result()
