"""Writing one object to a bucket while its bytes arrive, in the memory of a few parts.

A small object is one PUT; a larger one is a multipart upload, which the store aborts if the object is discarded. What
arrived is compared with what was sent: S3 answers with the MD5 of the bytes, or of the parts' MD5s, as the object's ETag.
Where the ETag is something else (with keys of a key service), the object is read back and its SHA-256 compared.
"""

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Full, Queue
from typing import TYPE_CHECKING

import obstore
from obstore.store import S3Store as Bucket

from trainwright_backend.core.object_store import WRITTEN, ObjectDamagedError, StoredObject
from trainwright_backend.core.s3_errors import ObjectStoreError, reaching_store, writing_to_store

if TYPE_CHECKING:
    from obstore import PutResult

PART_BYTES = 5 << 20
"""The smallest part that S3 accepts, since every upload needs the memory of several parts."""

MAX_PARTS = 9_000
"""S3 allows 10,000; the parts of a larger object are larger."""

PARTS_AT_ONCE = 3
DIGEST_KEY = "sha256"
"""The object's metadata with its SHA-256 in hex, where it was known before the bytes."""


class _DiscardedError(Exception):
    """The object is no longer wanted."""


class S3Writer:
    """An object that is being written.

    Args:
        expected: its size and digest, if known; they are stored with it.
    """

    def __init__(self, bucket: Bucket, key: str, expected: StoredObject | None) -> None:
        self._bucket, self._key, self._expected = bucket, key, expected
        size = 0 if expected is None else expected.bytes
        self._part_bytes = max(PART_BYTES, -(-size // MAX_PARTS))
        self._unsent: list[memoryview] = []
        self._unsent_bytes = 0
        self._sha = hashlib.sha256()
        self._part_md5s: list[bytes] = []
        self._parts: Queue[bytes | _DiscardedError | None] = Queue(maxsize=1)
        self._thread: ThreadPoolExecutor | None = None
        self._sending: Future[PutResult] | None = None
        self.bytes = 0

    def write(self, data: bytes) -> None:
        self._sha.update(data)
        self.bytes += len(data)
        WRITTEN.inc(len(data))
        rest = memoryview(data)
        # A full part waits until more follows, so that `finish` has at least a byte to send.
        while self._unsent_bytes + len(rest) > self._part_bytes:
            missing = self._part_bytes - self._unsent_bytes
            self._unsent.append(rest[:missing])
            self._send(self._take_unsent())
            rest = rest[missing:]
        self._unsent.append(rest)
        self._unsent_bytes += len(rest)

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes written so far, in hex."""
        return self._sha.hexdigest()

    def finish(self) -> StoredObject:
        """Make the object visible under its key, and compare what arrived.

        Raises:
            ObjectStoreError: the store did not take it.
            ObjectDamagedError: the store has other bytes; they are deleted.
        """
        last = self._take_unsent()
        with writing_to_store():
            if self._sending is None:
                etag = _md5(last).hexdigest()
                result = obstore.put(
                    self._bucket, self._key, last, attributes=self._attributes(), use_multipart=False
                )
            else:
                self._send(last)
                self._hand_over(None)
                result = self._sending.result()
                etag = f"{_md5(b''.join(self._part_md5s)).hexdigest()}-{len(self._part_md5s)}"
        self._stop()
        if (result["e_tag"] or "").strip('"') != etag:
            self._compare()
        return StoredObject(self.bytes, self.digest)

    def discard(self) -> None:
        """Abort what was not finished, and wait for the store. Its errors are logged, not raised."""
        if self._sending is not None and not self._sending.done():
            with suppress(ObjectStoreError):
                self._hand_over(_DiscardedError())
            self._sending.exception()
        self._stop()

    def _take_unsent(self) -> bytes:
        unsent = b"".join(self._unsent)
        self._unsent, self._unsent_bytes = [], 0
        return unsent

    def _send(self, part: bytes) -> None:
        if self._sending is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="s3")
            self._sending = self._thread.submit(
                obstore.put,
                self._bucket,
                self._key,
                self._handed_over(),
                attributes=self._attributes(),
                use_multipart=True,
                chunk_size=self._part_bytes,
                max_concurrency=PARTS_AT_ONCE,
            )
        self._part_md5s.append(_md5(part).digest())
        self._hand_over(part)

    def _hand_over(self, part: bytes | _DiscardedError | None) -> None:
        assert self._sending is not None, "a part was sent before"
        while True:
            try:
                return self._parts.put(part, timeout=0.2)
            except Full:
                if self._sending.done():  # it has failed and will read no more parts
                    with writing_to_store():
                        self._sending.result()

    def _handed_over(self) -> Iterator[bytes]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, _DiscardedError):
                raise part
            yield part

    def _attributes(self) -> dict[str, str]:
        return {} if self._expected is None else {DIGEST_KEY: self._expected.digest}

    def _compare(self) -> None:
        stored = hashlib.sha256()
        with reaching_store():
            for block in obstore.get(self._bucket, self._key).stream():
                stored.update(block)
        if stored.hexdigest() != self.digest:
            with reaching_store():
                obstore.delete(self._bucket, self._key)
            raise ObjectDamagedError(self._key, self.digest, stored.hexdigest())

    def _stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False)


def _md5(data: bytes) -> "hashlib._Hash":
    return hashlib.md5(data, usedforsecurity=False)
