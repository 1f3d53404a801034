"""The bytes of an unfinished upload in a bucket, as segments.

The bytes that a request brings between two save points are one segment: a separate object with a unique name. The rows say
which segments count, so requests to several processes cannot mix their bytes. The segments of a complete upload are copied
into one object, which reads and writes all bytes once more.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from uuid import uuid4

import obstore
from obstore.store import S3Store as Bucket

from trainwright_backend.core.object_store import (
    BUFFER_BYTES,
    READ,
    ObjectDamagedError,
    ObjectWriter,
    StoredObject,
)
from trainwright_backend.core.s3_errors import reaching_store
from trainwright_backend.core.s3_writer import S3Writer

if TYPE_CHECKING:
    from hashlib import _Hash

OpenWrite = Callable[[str, StoredObject], AbstractContextManager[ObjectWriter]]


class SegmentedUpload:
    """An upload that is open for one request.

    Args:
        folder: of its segments.
        open_write: opens the object that the upload becomes.
    """

    def __init__(self, bucket: Bucket, folder: str, open_write: OpenWrite) -> None:
        self._bucket, self._folder, self._open_write = bucket, folder, open_write
        self._segments: list[str] = []
        self._writer: S3Writer | None = None
        self._writer_name = ""
        self._unsaved: deque[tuple[str, S3Writer]] = deque()

    def resume(self, offset: int, segments: Sequence[str]) -> bool:
        self._segments = list(segments)
        with reaching_store():
            pages = obstore.list(self._bucket, f"{self._folder}/") if segments else ()
            sizes = {entry["path"].rpartition("/")[2]: entry["size"] for page in pages for entry in page}
        return sum(sizes.get(name, 0) for name in segments) == offset

    def write(self, data: bytes) -> None:
        if self._writer is None:
            self._writer_name = uuid4().hex
            self._writer = S3Writer(self._bucket, self._path(self._writer_name), None)
        self._writer.write(data)

    def save_point(self) -> None:
        if self._writer is not None:
            self._unsaved.append((self._writer_name, self._writer))
            self._writer = None

    def save(self) -> str | None:
        if not self._unsaved:
            return None
        name, writer = self._unsaved[0]
        writer.finish()
        self._unsaved.popleft()
        self._segments.append(name)
        return name

    def hash(self) -> "_Hash":
        found = hashlib.sha256()
        for block in self._content():
            found.update(block)
        return found

    def publish(self, key: str, content: StoredObject) -> None:
        """Copy the segments into one object.

        Raises:
            ObjectDamagedError: they do not have the digest of the bytes that arrived.
        """
        with self._open_write(key, content) as target:
            for block in self._content():
                target.write(block)
            if target.digest != content.digest:
                raise ObjectDamagedError(key, content.digest, target.digest)
            target.finish()

    def close(self) -> None:
        self.save_point()
        for _, writer in self._unsaved:
            writer.discard()

    def _content(self) -> Iterator[bytes]:
        for name in self._segments:
            with reaching_store():
                for block in obstore.get(self._bucket, self._path(name)).stream(min_chunk_size=BUFFER_BYTES):
                    READ.inc(len(block))
                    yield bytes(block)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
