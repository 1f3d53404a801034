"""The object store: bytes under keys, in a local folder.

Objects are written atomically: bytes go to a temporary file and are hashed as they arrive; then the file is synced and
renamed, and the folder is synced. The platform makes keys from ids and checked names, and no key can leave the folder.
An open stream needs one buffer of memory, for objects of any size.

Clients transfer objects through signed links (`signed_links`).
"""

import hashlib
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal
from uuid import UUID, uuid4

from pydantic import SecretStr

from trainwright.durable_files import make_folder_durably, rename_durably, sync_file, sync_folder
from trainwright_backend.core.signed_links import LinkGrant, LinkSigner

BUFFER_BYTES = 1 << 20
ABANDONED_SECONDS = 24 * 3600.0
INCOMING = ".incoming"
"""Folder of unfinished objects. No key can name it."""

UPLOADS = ".uploads"
"""Folder of unfinished uploads, which survive restarts and belong to rows. No key can name it."""

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class StoredObject:
    """Size and digest of a finished object."""

    bytes: int
    digest: str
    """SHA-256, in hex."""


class ObjectWriter:
    """An object that is being written. `LocalStore.open_write` opens it; `finish` makes it visible."""

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
        """SHA-256 of the bytes written so far, in hex."""
        return self._sha.hexdigest()

    def close(self) -> None:
        """Sync the bytes to disk. The object is not visible yet."""
        if not self._file.closed:
            sync_file(self._file)
            self._file.close()

    def finish(self) -> StoredObject:
        """Make the object visible under its key, durably. It replaces an older one."""
        self.close()
        make_folder_durably(self._target.parent)
        rename_durably(Path(self._file.name), self._target)
        self.finished = True
        return StoredObject(self.bytes, self.digest)


class LocalStore:
    """Objects as files below one folder."""

    def __init__(self, root: Path, secret_key: SecretStr) -> None:
        self.root = root
        self._incoming = root / INCOMING
        self._uploads = root / UPLOADS
        for folder in (self._incoming, self._uploads):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._signer = LinkSigner(secret_key)

    def path_of(self, key: str) -> Path:
        """The object's path, for processes on the same disk."""
        segments = key.split("/")
        if not all(_SEGMENT.fullmatch(segment) for segment in segments):
            raise ValueError(f"{key!r} is not an object key: segments are letters, digits, '.', '_' and '-'")
        return self.root.joinpath(*segments)

    def stat(self, key: str) -> int | None:
        """Size of the object in bytes; None when it does not exist."""
        with suppress(FileNotFoundError):
            path = self.path_of(key)
            return path.stat().st_size if path.is_file() else None
        return None

    @contextmanager
    def open_write(self, key: str) -> Iterator[ObjectWriter]:
        """Open a new object. It is discarded unless the block calls `ObjectWriter.finish`."""
        target = self.path_of(key)
        path = self._incoming / uuid4().hex
        with path.open("xb") as file:
            incoming = ObjectWriter(file, target)
            try:
                yield incoming
            finally:
                if not incoming.finished:
                    path.unlink(missing_ok=True)

    def put_file(self, key: str, path: Path) -> StoredObject:
        """Store a copy of a local file."""
        with path.open("rb") as file, self.open_write(key) as incoming:
            while data := file.read(BUFFER_BYTES):
                incoming.write(data)
            return incoming.finish()

    @contextmanager
    def working_folder(self) -> Iterator[Path]:
        """A temporary folder, removed at the end of the block."""
        with TemporaryDirectory(dir=self._incoming) as folder:
            yield Path(folder)

    def write(self, key: str, data: bytes) -> StoredObject:
        """Store a small object."""
        with self.open_write(key) as incoming:
            incoming.write(data)
            return incoming.finish()

    def open_read(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The object's bytes from ``start`` to ``end`` (exclusive), one buffer at a time."""
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
        """The content of a small object."""
        return self.path_of(key).read_bytes()

    def delete(self, key: str) -> None:
        """Delete the object, if it exists."""
        self.path_of(key).unlink(missing_ok=True)

    def delete_prefix(self, prefix: str) -> None:
        """Delete all objects in the folder ``prefix``, or the object with this key, if they exist."""
        path = self.path_of(prefix)
        with suppress(FileNotFoundError):
            path.unlink() if path.is_file() else shutil.rmtree(path)

    def list_prefix(self, prefix: str) -> list[str]:
        """Keys of all objects in the folder ``prefix``, sorted."""
        found = (path for path in self.path_of(prefix).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def sweep_incoming(self) -> None:
        """Delete temporary files that killed writers left behind."""
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def partial_path(self, upload_id: UUID) -> Path:
        """The file with the bytes of an unfinished upload."""
        return self._uploads / upload_id.hex

    def list_partials(self) -> list[UUID]:
        """The uploads that have a file of unfinished bytes."""
        return [UUID(hex=path.name) for path in self._uploads.iterdir()]

    def drop_partial(self, upload_id: UUID) -> None:
        """Delete the bytes of an upload, if there are any."""
        self.partial_path(upload_id).unlink(missing_ok=True)

    def link_partial(self, upload_id: UUID, key: str) -> None:
        """Turn the bytes of an upload into an object, by a second link to the same file.

        The upload keeps its own link, so it loses nothing in a crash before the rows are written.
        """
        target = self.path_of(key)
        make_folder_durably(target.parent)
        target.hardlink_to(self.partial_path(upload_id))
        sync_folder(target.parent)

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
        self.path_of(key)
        return self._signer.sign(method, key, expires_seconds, digest=digest, size=bytes)

    def verify(self, signed: str, method: str) -> LinkGrant:
        """What a signed link permits.

        Raises:
            Forbidden: the link was not made here, is for another method, or has expired.
        """
        return self._signer.verify(signed, method)
