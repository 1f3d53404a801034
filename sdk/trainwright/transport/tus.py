# Generated from transport/async_tus.py by infra/sync_client.py. Change that file.
"""Resumable uploads: tus 1.0 over the client's connection.

A file is sent in several requests. After an error the client asks the server for the offset and continues there, as long as
there is some progress. The upload of each file is remembered on this machine, so a later process can continue as
well. At the end, the digests of the server are compared with those of the files. The caller chooses the files
(`local_files.find_files`) and decides how to use the uploads.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from uuid import uuid4

import httpx

from trainwright.contracts.api.uploads import Upload
from trainwright.transport.blocking import call_blocking, iterate_blocking, sleep
from trainwright.transport.connection import Connection
from trainwright.transport.errors import ApiError, DigestMismatchError, FileChangedError
from trainwright.transport.local_files import LocalFile
from trainwright.transport.tls import is_untrusted
from trainwright.transport.upload_memory import UploadMemory

REQUEST_BYTES = 64 << 20
"""Most bytes of one request."""

GIVE_UP_SECONDS = 900.0
"""How long to retry without any progress."""

BACK_OFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
PROTOCOL = {"Tus-Resumable": "1.0.0"}
GONE = frozenset({404, 410})
RETRIED = frozenset({408, 409, 423, 429, 460, 500, 502, 503, 504, 507})
"""Status codes after which the upload continues from the server's offset."""


class TusUploader:
    """Uploads files to one team.

    Args:
        connection: to the server.
        path: address of the team's uploads, relative to the API.
        memory: of unfinished uploads; by default in the user's cache folder.
    """

    def __init__(self, connection: Connection, path: str, memory: UploadMemory | None = None) -> None:
        self._connection = connection
        self._path = path
        self._memory = memory or UploadMemory.of_user()

    def send(self, files: Sequence[LocalFile], on_bytes: Callable[[int], None]) -> list[str]:
        """Upload files, or the rest of them, and return the ids of the complete uploads, in order.

        Raises:
            ApiError: the server rejects a file.
            FileChangedError: a file changed during its upload.
            DigestMismatchError: the server received other bytes than the file has.
        """
        ids = [self._send(file, on_bytes) for file in files]
        digests = {upload.id: upload.digest for upload in self._connection.get_pages(self._path, Upload)}
        for file, upload in zip(files, ids, strict=True):
            digest = call_blocking(file.digest)
            if digests.get(upload) != digest:
                self.drop(file, upload)
                raise DigestMismatchError(
                    f"{file.name}: SHA-256 is {digest} here and {digests.get(upload)} on the server. Upload it again."
                )
        return ids

    def drop(self, file: LocalFile, upload: str) -> None:
        """Delete an upload and forget it."""
        self._call("DELETE", upload)
        self.forget([file])

    def forget(self, files: Sequence[LocalFile]) -> None:
        """Forget the uploads of these files, once a dataset uses them. The next upload starts from the beginning."""
        for file in files:
            self._memory.forget(self._fingerprint(file))

    def _send(self, file: LocalFile, on_bytes: Callable[[int], None]) -> str:
        upload, offset = self._begin(file)
        on_bytes(offset)
        tries, last_progress = 0, time.monotonic()
        while offset < file.size_bytes:
            if file.has_changed():
                self.drop(file, upload)
                raise FileChangedError(f"{file.path} changed during the upload. Upload it again.")
            before = offset
            try:
                offset = self._send_part(file, upload, offset)
            except (httpx.TransportError, ApiError) as error:
                _raise_unless_retried(error, last_progress)
                sleep(BACK_OFF_SECONDS[min(tries, len(BACK_OFF_SECONDS) - 1)])
                tries += 1
                offset = self._offset_with_retries(upload, last_progress)
            on_bytes(offset - before)
            if offset > before:
                tries, last_progress = 0, time.monotonic()
        return upload

    def _begin(self, file: LocalFile) -> tuple[str, int]:
        """An upload for the file, an earlier one if it still exists, and its offset."""
        fingerprint = self._fingerprint(file)
        upload = self._memory.find(fingerprint)
        if upload is not None:
            try:
                return upload, self._offset_with_retries(upload, time.monotonic())
            except ApiError as error:
                if error.status not in GONE:
                    raise
        upload = self._create(file)
        self._memory.keep(fingerprint, upload)
        return upload, 0

    def _create(self, file: LocalFile) -> str:
        named = base64.b64encode(file.name.encode()).decode()
        headers = {
            "Upload-Length": str(file.size_bytes),
            "Upload-Metadata": f"filename {named}",
            "Idempotency-Key": str(uuid4()),
        }
        response = self._connection.repeat("POST", self._path, PROTOCOL | headers)
        return response.headers["Location"].rpartition("/")[2]

    def _send_part(self, file: LocalFile, upload: str, offset: int) -> int:
        count = min(REQUEST_BYTES, file.size_bytes - offset)
        headers = {
            "Upload-Offset": str(offset),
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(count),
        }
        return _offset(self._call("PATCH", upload, headers, iterate_blocking(file.read(offset, count))))

    def _offset_with_retries(self, upload: str, since: float) -> int:
        tries = 0
        while True:
            try:
                return _offset(self._call("HEAD", upload))
            except (httpx.TransportError, ApiError) as error:
                _raise_unless_retried(error, since)
            sleep(BACK_OFF_SECONDS[min(tries, len(BACK_OFF_SECONDS) - 1)])
            tries += 1

    def _call(
        self,
        method: str,
        upload: str,
        headers: dict[str, str] | None = None,
        content: Iterator[bytes] | None = None,
    ) -> httpx.Response:
        return self._connection.call(method, f"{self._path}/{upload}", PROTOCOL | (headers or {}), content)

    def _fingerprint(self, file: LocalFile) -> str:
        identity = [
            self._connection.server,
            self._path,
            file.name,
            str(file.path.resolve()),
            file.size_bytes,
            file.changed,
        ]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def _offset(response: httpx.Response) -> int:
    return int(response.headers["Upload-Offset"])


def _raise_unless_retried(error: httpx.TransportError | ApiError, last_progress: float) -> None:
    if is_untrusted(error) or (isinstance(error, ApiError) and error.status not in RETRIED):
        raise error
    if time.monotonic() - last_progress > GIVE_UP_SECONDS:
        raise error
