"""The bytes of an unfinished upload, checked and hashed during one request."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright_backend.core.object_store import StoredObject, UploadContent
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
    """An upload that a request adds bytes to.

    Args:
        content: its bytes in the store; None for a complete upload.
        row: the upload.
        request: the request that adds bytes.
        upload_hash: SHA-256 of the bytes before the offset, if it is known.

    Raises:
        AppError: the request starts at another offset, or exceeds the announced size.
    """

    def __init__(
        self,
        content: UploadContent | None,
        row: Upload,
        request: UploadRequest,
        upload_hash: "_Hash | None",
    ) -> None:
        if request.offset != row.offset:
            raise errors.wrong_offset(row, request.offset)
        self._content = content
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
        self._open_content.write(data)
        for running_hash in (self._upload_hash, self._request_hash):
            if running_hash is not None:
                running_hash.update(data)
        self.position += len(data)

    def save_point(self) -> SavePoint:
        """The current position, taken while no thread writes."""
        self._open_content.save_point()
        self.last_save_point = self.position
        return SavePoint(self.position, None if self._upload_hash is None else self._upload_hash.copy())

    def save(self) -> str | None:
        """Make the bytes before the oldest save point durable; returns the segment that has them, if they have one."""
        return self._open_content.save()

    def matches_checksum(self) -> bool:
        """Whether the request's bytes match its checksum, if it has one."""
        if self._expected is None or self._request_hash is None:
            return True
        return self._request_hash.digest() == self._expected.digest

    def digest(self) -> str:
        """SHA-256 of the entire file, in hex. The file is read again if its hash was not computed on the way."""
        if self._upload_hash is None:
            self._upload_hash = self._open_content.hash()
        return self._upload_hash.hexdigest()

    def close(self) -> None:
        """Release the upload."""
        if self._content is not None:
            self._content.close()

    def publish(self, key: str) -> None:
        """Make the bytes an object."""
        self._open_content.publish(key, StoredObject(self.bytes, self.digest()))

    @property
    def _open_content(self) -> UploadContent:
        assert self._content is not None, "a complete upload takes no bytes"
        return self._content
