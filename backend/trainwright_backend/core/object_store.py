"""The object store: bytes under keys, in a local folder (`local_store`) or in a bucket (`s3_store`).

An object appears under its key with all its bytes, or not at all. The platform makes keys from ids and checked names, and
never two writers with one key and other bytes, so a store needs no conditional writes. Clients transfer objects through
signed links (`signed_links`).
"""

import builtins
import hashlib
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, Protocol
from uuid import UUID

import structlog
from pydantic import SecretStr

from trainwright_backend.core.counters import STORE_BYTES, STORE_ERRORS
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.signed_links import LinkGrant, LinkSigner

if TYPE_CHECKING:
    from hashlib import _Hash

BUFFER_BYTES = 1 << 20
ABANDONED_SECONDS = 24 * 3600.0
INCOMING = ".incoming"
"""Folder of unfinished objects and of files at work. No key can name it."""

UPLOADS = ".uploads"
"""Folder of unfinished uploads, which survive restarts and belong to rows. No key can name it."""

log = structlog.get_logger()

WRITTEN = STORE_BYTES.labels("written")
READ = STORE_BYTES.labels("read")

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class StoredObject:
    """Size and digest of a finished object."""

    bytes: int
    digest: str
    """SHA-256, in hex."""


class ObjectWriter(Protocol):
    """An object that is being written. `ObjectStore.open_write` opens it; `finish` makes it visible."""

    bytes: int
    """Bytes written so far."""

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes written so far, in hex."""

    def write(self, data: builtins.bytes) -> None: ...

    def finish(self) -> StoredObject:
        """Make the object visible under its key, durably. It replaces an older one."""


class UploadContent(Protocol):
    """The bytes of an unfinished upload, open for one request. Only one thread writes; another may save meanwhile."""

    def resume(self, offset: int, segments: Sequence[str]) -> bool:
        """Discard what lies beyond ``offset``.

        Args:
            segments: what `save` returned for the bytes before, in order.

        Returns:
            Whether all bytes before ``offset`` are there.
        """

    def write(self, data: bytes) -> None: ...

    def save_point(self) -> None:
        """Mark the current end, while no thread writes: the next `save` makes the bytes before it durable."""

    def save(self) -> str | None:
        """Make the bytes before the oldest mark that is not saved durable; returns the name of their segment, if any."""

    def hash(self) -> "_Hash":
        """SHA-256 of all bytes, which were saved; reads them again."""

    def publish(self, key: str, content: StoredObject) -> None:
        """Make the bytes, which were saved, an object. The upload keeps them until `ObjectStore.drop_partial`."""

    def close(self) -> None:
        """Release the upload, and what was not saved."""


class ObjectDamagedError(AppError):
    """An object has other bytes than those that were stored."""

    def __init__(self, key: str, expected: str, found: str) -> None:
        STORE_ERRORS.labels("damaged").inc()
        log.error("object damaged", key=key, expected=expected, found=found)
        detail = (
            f"The object store has other bytes of {key} than those that were stored: SHA-256 {found} instead of "
            f"{expected}. Try again; if it repeats, check the store."
        )
        super().__init__("object_damaged", 503, detail, headers={"Retry-After": "5"})


class UploadInUseError(Exception):
    """Another process writes to this upload."""


class ObjectStore(ABC):
    """Objects by key.

    Args:
        local: folder on this machine for unfinished objects and files at work.
        secret_key: signs links.
    """

    records_digests = False
    """Whether a digest that is known before the bytes is stored with the object."""

    def __init__(self, local: Path, secret_key: SecretStr) -> None:
        self._incoming = local / INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._signer = LinkSigner(secret_key)

    @abstractmethod
    def local_file(self, key: str) -> Path:
        """A file on this machine with the object's bytes, for reading in the next hour.

        Raises:
            FileNotFoundError: there is no such object. A local store does not check this: opening the file fails.
        """

    @abstractmethod
    def direct_link(self, key: str, expires_seconds: float) -> str | None:
        """The address at which clients can download from the store itself; None if only this process can read it."""

    @abstractmethod
    def stat(self, key: str) -> int | None:
        """Size of the object in bytes; None when it does not exist."""

    @abstractmethod
    def content_of(self, key: str) -> StoredObject:
        """Size and digest of an object: as it was stored if the store records that, otherwise read from it.

        Raises:
            FileNotFoundError: there is no such object.
        """

    @abstractmethod
    def open_write(
        self, key: str, expected: StoredObject | None = None
    ) -> AbstractContextManager[ObjectWriter]:
        """Open a new object. It is discarded unless the block calls `ObjectWriter.finish`.

        Args:
            expected: its size and digest, if they are known; the caller compares them before `ObjectWriter.finish`.
        """

    @abstractmethod
    def open_read(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The object's bytes from ``start`` to ``end`` (exclusive), a block at a time."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> None:
        """Delete all objects in the folder ``prefix``, or the object with this key, if they exist."""

    @abstractmethod
    def list_prefix(self, prefix: str) -> list[str]:
        """Keys of all objects in the folder ``prefix``, sorted; of all objects for an empty one."""

    @abstractmethod
    def open_upload(self, upload_id: UUID) -> UploadContent:
        """The bytes of an unfinished upload.

        Raises:
            UploadInUseError: another process writes to it. Only a local store can tell; for others the rows decide.
        """

    @abstractmethod
    def list_partials(self) -> list[UUID]:
        """The unfinished uploads that have stored bytes."""

    @abstractmethod
    def drop_partial(self, upload_id: UUID) -> None:
        """Delete the bytes of an upload, if there are any."""

    def read(self, key: str) -> bytes:
        """The content of a small object."""
        return b"".join(self.open_read(key))

    def write(self, key: str, data: bytes) -> StoredObject:
        """Store a small object."""
        with self.open_write(key, StoredObject(len(data), hashlib.sha256(data).hexdigest())) as incoming:
            incoming.write(data)
            return incoming.finish()

    def put_file(self, key: str, path: Path) -> StoredObject:
        """Store a copy of a local file."""
        content = file_content(path) if self.records_digests else None
        with path.open("rb") as file, self.open_write(key, content) as incoming:
            while data := file.read(BUFFER_BYTES):
                incoming.write(data)
            return incoming.finish()

    def delete(self, key: str) -> None:
        """Delete the object, if it exists."""
        self.delete_prefix(key)

    @contextmanager
    def working_folder(self) -> Iterator[Path]:
        """A temporary folder, removed at the end of the block."""
        with TemporaryDirectory(dir=self._incoming) as folder:
            yield Path(folder)

    def sweep_incoming(self) -> None:
        """Delete temporary files that killed writers left behind."""
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

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
            digest: for PUT, the required SHA-256 in hex.
            bytes: for PUT, the required size.
        """
        segments_of(key)
        return self._signer.sign(method, key, expires_seconds, digest=digest, size=bytes)

    def verify(self, signed: str, method: str) -> LinkGrant:
        """What a signed link permits.

        Raises:
            Forbidden: the link was not made here, is for another method, or has expired.
        """
        return self._signer.verify(signed, method)


def file_content(path: Path) -> StoredObject:
    """Size and digest of a file."""
    with path.open("rb") as file:
        return StoredObject(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def segments_of(key: str) -> list[str]:
    """The parts of a key.

    Raises:
        ValueError: it is not a key.
    """
    segments = key.split("/")
    if not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise ValueError(f"{key!r} is not an object key: segments are letters, digits, '.', '_' and '-'")
    return segments
