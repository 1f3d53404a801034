"""The file of an unfinished upload, open during one request."""

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright_backend.uploads import errors
from trainwright_backend.uploads.request_body import UploadRequest
from trainwright_backend.uploads.tables import Upload
from trainwright_backend.uploads.tus import CHECKSUMS

if TYPE_CHECKING:
    from hashlib import _Hash


@dataclass(frozen=True)
class SavePoint:
    """A position in the file, and the hash of the bytes before it if it is known."""

    position: int
    hash: "_Hash | None"


class PartialFile:
    """The open file of an upload.

    Args:
        handle: file descriptor; -1 for a complete upload.
        row: the upload.
        request: the request that adds bytes.
        upload_hash: SHA-256 of the bytes before the offset, if it is known.

    Raises:
        AppError: the request starts at another offset, or exceeds the announced size.
    """

    def __init__(self, handle: int, row: Upload, request: UploadRequest, upload_hash: "_Hash | None") -> None:
        if request.offset != row.offset:
            raise errors.wrong_offset(row, request.offset)
        self._handle = handle
        self._upload_hash = upload_hash
        self._expected = request.checksum
        self._request_hash = CHECKSUMS[request.checksum.algorithm]() if request.checksum is not None else None
        self.row = row
        self.bytes = row.bytes
        self.is_complete = row.stored_file_id is not None
        self.position = self.safe = self.last_save_point = row.offset
        self.admit(request.length or 0)

    def admit(self, count: int) -> None:
        """Refuse bytes beyond the announced size."""
        if self.position + count > self.bytes:
            raise errors.too_many_bytes(self.row)

    def write(self, block: list[bytes]) -> None:
        data = b"".join(block)
        view = memoryview(data)
        position = self.position
        while view:
            written = os.pwrite(self._handle, view, position)
            position, view = position + written, view[written:]
        for running_hash in (self._upload_hash, self._request_hash):
            if running_hash is not None:
                running_hash.update(data)
        self.position = position

    def save_point(self) -> SavePoint:
        """The current position, taken while no thread writes."""
        self.last_save_point = self.position
        return SavePoint(self.position, None if self._upload_hash is None else self._upload_hash.copy())

    def sync(self) -> None:
        os.fdatasync(self._handle)

    def matches_checksum(self) -> bool:
        """Whether the request's bytes match its checksum, if it has one."""
        if self._expected is None or self._request_hash is None:
            return True
        return self._request_hash.digest() == self._expected.digest

    def digest(self) -> str:
        """SHA-256 of the entire file, in hex. The file is read again if its hash was not computed on the way."""
        if self._upload_hash is None:
            os.lseek(self._handle, 0, os.SEEK_SET)
            with open(self._handle, "rb", closefd=False) as content:
                self._upload_hash = hashlib.file_digest(content, "sha256")
        return self._upload_hash.hexdigest()

    def close(self) -> None:
        """Close the file, which releases its lock."""
        if self._handle >= 0:
            os.close(self._handle)
