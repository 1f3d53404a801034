"""The object store: bytes under keys, on a local folder.

An object appears whole or not at all: bytes go to a temporary file and are hashed as they arrive, then fsync, rename,
fsync of the folder. Keys are made by us from ids and checked names; none of them can leave the folder. Memory is one
buffer an open stream, whatever the size of the object.

Bytes move by signed links (`sign`): the signature is the right, names one method and one key, and expires. An upload
link also names size and digest, and nothing else is kept.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, BinaryIO, Literal
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response
from itsdangerous import BadSignature, URLSafeSerializer
from pydantic import BaseModel, SecretStr, ValidationError

from trainwright.contracts.base import Problem
from trainwright_backend.core.errors import Forbidden, Invalid, NotFound
from trainwright_backend.core.policy import public

BUFFER_BYTES = 1 << 20
STREAMED = 1 << 62
"""``max_body_size`` of a route that never holds a whole body in memory."""

SHIPPED = 32 << 20
"""``max_body_size`` of a route by which agents send what a run makes: a line of its events may have 16 MiB."""

ABANDONED_SECONDS = 24 * 3600.0
INCOMING = ".incoming"
"""Folder of unfinished objects; no key can name it."""

UPLOADS = ".uploads"
"""Folder of unfinished uploads, which outlive processes; rows say whose they are. No key can name it."""

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class Stored:
    """What a finished object consists of."""

    bytes: int
    digest: str
    """SHA-256, in hex."""


class Incoming:
    """An object on its way in. `LocalStore.open_write` gives it out; `finish` makes it visible."""

    def __init__(self, file: BinaryIO, target: Path) -> None:
        self._file = file
        self._target = target
        self._sha = hashlib.sha256()
        self.bytes = 0
        self.finished = False

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._sha.update(data)
        self.bytes += len(data)

    @property
    def digest(self) -> str:
        """SHA-256 of what was written so far, in hex."""
        return self._sha.hexdigest()

    def close(self) -> None:
        """All bytes are here and safe from a power cut; the object is not visible yet."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def finish(self) -> Stored:
        """Make the object visible under its key, replacing an older one, and safe from a power cut."""
        self.close()
        _make_folder(self._target.parent)
        Path(self._file.name).replace(self._target)
        _fsync_folder(self._target.parent)
        self.finished = True
        return Stored(self.bytes, self.digest)


class LocalStore:
    """Objects as files below one folder."""

    def __init__(self, root: Path, secret_key: SecretStr) -> None:
        self.root = root
        self._incoming = root / INCOMING
        self._uploads = root / UPLOADS
        for folder in (self._incoming, self._uploads):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._signer = URLSafeSerializer(secret_key.get_secret_value(), salt="trainwright.blobs")

    def path_of(self, key: str) -> Path:
        """Where the object lies, for those who share the disk."""
        segments = key.split("/")
        if not all(_SEGMENT.fullmatch(segment) for segment in segments):
            raise ValueError(f"{key!r} is no object key: segments are letters, digits, '.', '_' and '-'")
        return self.root.joinpath(*segments)

    def stat(self, key: str) -> int | None:
        """Bytes of the object; None when there is none."""
        with suppress(FileNotFoundError):
            path = self.path_of(key)
            return path.stat().st_size if path.is_file() else None
        return None

    @contextmanager
    def open_write(self, key: str) -> Iterator[Incoming]:
        """A new object. Left without `Incoming.finish`, it was never there."""
        target = self.path_of(key)
        path = self._incoming / uuid4().hex
        with path.open("xb") as file:
            incoming = Incoming(file, target)
            try:
                yield incoming
            finally:
                if not incoming.finished:
                    path.unlink(missing_ok=True)

    def put_file(self, key: str, path: Path) -> Stored:
        """Store a copy of a local file."""
        with path.open("rb") as file, self.open_write(key) as incoming:
            while data := file.read(BUFFER_BYTES):
                incoming.write(data)
            return incoming.finish()

    @contextmanager
    def working_folder(self) -> Iterator[Path]:
        """A folder for work in progress, gone at the end of the block."""
        with TemporaryDirectory(dir=self._incoming) as folder:
            yield Path(folder)

    def write(self, key: str, data: bytes) -> Stored:
        """Store a small object at once."""
        with self.open_write(key) as incoming:
            incoming.write(data)
            return incoming.finish()

    def open_read(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The object's bytes from ``start`` up to ``end`` (exclusive), a buffer at a time."""
        with self.path_of(key).open("rb") as file:
            file.seek(start)
            left = None if end is None else end - start
            while left is None or left > 0:
                data = file.read(BUFFER_BYTES if left is None else min(BUFFER_BYTES, left))
                if not data:
                    return
                left = None if left is None else left - len(data)
                yield data

    def read(self, key: str) -> bytes:
        """A small object at once."""
        return self.path_of(key).read_bytes()

    def delete(self, key: str) -> None:
        """Remove the object; harmless when there is none."""
        self.path_of(key).unlink(missing_ok=True)

    def delete_prefix(self, prefix: str) -> None:
        """Remove all objects below the folder ``prefix``, or the one of this key; harmless when there are none."""
        path = self.path_of(prefix)
        with suppress(FileNotFoundError):
            path.unlink() if path.is_file() else shutil.rmtree(path)

    def list_prefix(self, prefix: str) -> list[str]:
        """Keys of all objects below the folder ``prefix``, sorted."""
        found = (path for path in self.path_of(prefix).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def sweep_incoming(self) -> None:
        """Remove what writers that were killed left behind."""
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def partial_path(self, upload_id: UUID) -> Path:
        """Where the bytes of an unfinished upload lie."""
        return self._uploads / upload_id.hex

    def list_partials(self) -> list[UUID]:
        """The uploads that bytes lie here for."""
        return [UUID(hex=path.name) for path in self._uploads.iterdir()]

    def drop_partial(self, upload_id: UUID) -> None:
        """Forget the bytes of an upload; harmless when there are none."""
        self.partial_path(upload_id).unlink(missing_ok=True)

    def link_partial(self, upload_id: UUID, key: str) -> None:
        """Make an upload's bytes, which are on the disk already, an object too; the upload keeps its own name for them.

        So a crash before the rows are written takes nothing from the upload.
        """
        target = self.path_of(key)
        _make_folder(target.parent)
        target.hardlink_to(self.partial_path(upload_id))
        _fsync_folder(target.parent)

    def sign(
        self,
        method: Literal["GET", "PUT"],
        key: str,
        expires_seconds: float,
        *,
        digest: str | None = None,
        bytes: int | None = None,
    ) -> str:
        """A link, relative to the API's address, that permits ``method`` on ``key`` for ``expires_seconds``.

        Args:
            digest: for PUT, the SHA-256 (hex) that the bytes must have.
            bytes: for PUT, how many there must be.
        """
        self.path_of(key)
        assert method == "GET" or (digest is not None and bytes is not None), (
            "an upload names size and digest"
        )
        right = Right(m=method, k=key, e=time.time() + expires_seconds, d=digest, b=bytes)
        return f"/api/v1/blobs/{self._signer.dumps(right.model_dump(exclude_none=True))}"

    def verify(self, signed: str, method: str) -> "Right":
        """The right that a link gives.

        Raises:
            Forbidden: it was not made here, is for another method, or has expired.
        """
        try:
            right = Right.model_validate(self._signer.loads(signed))
        except (BadSignature, ValidationError):
            raise Forbidden("bad_link", "This link is not valid. Ask for a new one.") from None
        if right.m != method:
            raise Forbidden("bad_link", f"This link is for {right.m}, not for {method}.")
        if right.e < time.time():
            raise Forbidden("link_expired", "This link has expired. Ask for a new one.")
        return right


class Right(BaseModel):
    """What a signed link permits; short names keep links short."""

    m: str
    k: str
    e: float
    d: str | None = None
    b: int | None = None


def get_store(request: Request) -> LocalStore:
    store = request.app.state.store
    assert isinstance(store, LocalStore)
    return store


Store = Annotated[LocalStore, Depends(get_store)]

router = APIRouter(tags=["blobs"], dependencies=[public("the signature in the link is the right")])


class BlobResponse(FileResponse):
    """A file in large pieces, with ranges."""

    chunk_size = BUFFER_BYTES


@router.get("/blobs/{signed}", response_class=BlobResponse)
def get_blob(signed: str, store: Store) -> BlobResponse:
    """Download an object by a signed link. Ranges are served."""
    right = store.verify(signed, "GET")
    if store.stat(right.k) is None:
        raise NotFound("The object of this link does not exist any more.")
    name = right.k.rpartition("/")[2]
    return BlobResponse(store.path_of(right.k), media_type="application/octet-stream", filename=name)


@router.put("/blobs/{signed}", status_code=204, max_body_size=STREAMED)
async def put_blob(signed: str, request: Request, store: Store) -> Response:
    """Upload an object by a signed link; refused, and not kept, unless size and digest are the announced ones."""
    right = store.verify(signed, "PUT")
    assert right.b is not None
    with store.open_write(right.k) as incoming:
        async for data in in_large_pieces(request.stream()):
            if incoming.bytes + len(data) > right.b:
                raise _wrong("bytes", f"More than the announced {right.b} bytes arrived.")
            await run_in_threadpool(incoming.write, data)
        if incoming.bytes != right.b:
            raise _wrong("bytes", f"{incoming.bytes} bytes arrived instead of the announced {right.b}.")
        if incoming.digest != right.d:
            raise _wrong(
                "digest", f"The bytes have SHA-256 {incoming.digest} instead of the announced {right.d}."
            )
        await run_in_threadpool(incoming.finish)
    return Response(status_code=204)


async def in_large_pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The bytes of ``stream`` in pieces worth a hop to a thread."""
    gathered = bytearray()
    async for data in stream:
        gathered += data
        if len(gathered) >= BUFFER_BYTES:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)


def _wrong(field: str, message: str) -> Invalid:
    return Invalid([Problem(field=field, message=f"{message} Nothing was kept: send the file again.")])


def _make_folder(folder: Path) -> None:
    """Create ``folder`` and its missing parents so that a power cut does not undo them."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _fsync_folder(folder.parent)


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
