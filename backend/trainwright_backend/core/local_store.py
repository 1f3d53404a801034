"""Objects in a local folder.

Objects are written atomically: bytes go to a temporary file and are hashed as they arrive; then the file is synced and
renamed, and the folder is synced. No key can leave the folder. An open stream needs one buffer of memory, whatever the
size of the object.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from uuid import UUID, uuid4

from pydantic import SecretStr

from trainwright.durable_files import make_folder_durably, rename_durably, sync_file, sync_folder
from trainwright_backend.core.object_store import (
    BUFFER_BYTES,
    READ,
    UPLOADS,
    WRITTEN,
    ObjectStore,
    StoredObject,
    UploadInUseError,
    file_content,
    segments_of,
)

if TYPE_CHECKING:
    from hashlib import _Hash


class FileWriter:
    """An object that is being written to a temporary file."""

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
        WRITTEN.inc(len(data))

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes written so far, in hex."""
        return self._sha.hexdigest()

    def finish(self) -> StoredObject:
        """Make the object visible under its key, durably. It replaces an older one."""
        sync_file(self._file)
        self._file.close()
        make_folder_durably(self._target.parent)
        rename_durably(Path(self._file.name), self._target)
        self.finished = True
        return StoredObject(self.bytes, self.digest)


class LocalStore(ObjectStore):
    """Objects as files below one folder."""

    def __init__(self, root: Path, secret_key: SecretStr) -> None:
        super().__init__(root, secret_key)
        self.root = root
        self._uploads = root / UPLOADS
        self._uploads.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path_of(self, key: str) -> Path:
        """The object's path, for processes on the same disk."""
        return self.root.joinpath(*segments_of(key))

    def local_file(self, key: str) -> Path:
        return self.path_of(key)

    def direct_link(self, key: str, expires_seconds: float) -> str | None:
        return None

    def stat(self, key: str) -> int | None:
        with suppress(FileNotFoundError):
            path = self.path_of(key)
            return path.stat().st_size if path.is_file() else None
        return None

    def content_of(self, key: str) -> StoredObject:
        return file_content(self.path_of(key))

    @contextmanager
    def open_write(self, key: str, expected: StoredObject | None = None) -> Iterator[FileWriter]:
        target = self.path_of(key)
        path = self._incoming / uuid4().hex
        with path.open("xb") as file:
            incoming = FileWriter(file, target)
            try:
                yield incoming
            finally:
                if not incoming.finished:
                    path.unlink(missing_ok=True)

    def open_read(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        with self.path_of(key).open("rb") as file:
            file.seek(start)
            left = None if end is None else end - start
            while left is None or left > 0:
                data = file.read(BUFFER_BYTES if left is None else min(BUFFER_BYTES, left))
                if not data:
                    return
                left = None if left is None else left - len(data)
                READ.inc(len(data))
                yield data

    def read(self, key: str) -> bytes:
        content = self.path_of(key).read_bytes()
        READ.inc(len(content))
        return content

    def delete_prefix(self, prefix: str) -> None:
        path = self.path_of(prefix)
        with suppress(FileNotFoundError):
            path.unlink() if path.is_file() else shutil.rmtree(path)

    def list_prefix(self, prefix: str) -> list[str]:
        folder = self.path_of(prefix) if prefix else self.root
        found = (path.relative_to(self.root) for path in folder.rglob("*") if path.is_file())
        return sorted(path.as_posix() for path in found if not path.parts[0].startswith("."))

    def open_upload(self, upload_id: UUID) -> "PartialFile":
        handle = os.open(self.partial_path(upload_id), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise UploadInUseError from None
        return PartialFile(self, handle, self.partial_path(upload_id))

    def list_partials(self) -> list[UUID]:
        return [UUID(hex=path.name) for path in self._uploads.iterdir()]

    def drop_partial(self, upload_id: UUID) -> None:
        self.partial_path(upload_id).unlink(missing_ok=True)

    def partial_path(self, upload_id: UUID) -> Path:
        """The file that holds the bytes of an unfinished upload."""
        return self._uploads / upload_id.hex


class PartialFile:
    """The file of an unfinished upload, locked until it is closed. The lock ends with its process."""

    def __init__(self, store: LocalStore, handle: int, path: Path) -> None:
        self._store, self._handle, self._path = store, handle, path
        self._position = 0

    def resume(self, offset: int, segments: Sequence[str]) -> bool:
        if os.fstat(self._handle).st_size < offset:
            return False
        os.ftruncate(self._handle, offset)
        self._position = offset
        return True

    def write(self, data: bytes) -> None:
        WRITTEN.inc(len(data))
        view = memoryview(data)
        while view:
            written = os.pwrite(self._handle, view, self._position)
            self._position, view = self._position + written, view[written:]

    def save_point(self) -> None:
        """All bytes before it are in the file already."""

    def save(self) -> None:
        os.fdatasync(self._handle)

    def hash(self) -> "_Hash":
        os.lseek(self._handle, 0, os.SEEK_SET)
        with open(self._handle, "rb", closefd=False) as content:
            return hashlib.file_digest(content, "sha256")

    def publish(self, key: str, content: StoredObject) -> None:
        """Make the file an object, by a second link to it: a crash before the rows are written loses nothing."""
        target = self._store.path_of(key)
        make_folder_durably(target.parent)
        target.hardlink_to(self._path)
        sync_folder(target.parent)

    def close(self) -> None:
        os.close(self._handle)
