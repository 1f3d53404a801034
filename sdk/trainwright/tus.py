"""Sending files so that nothing is lost: tus 1.0 over the client's connection.

A file goes in stretches; after anything that breaks, the server is asked how much it has, and the sending goes on
there, for as long as it keeps getting on now and then. Which upload belongs to which file is remembered on this
machine, so the same call goes on after this process has ended, too. At the end the server's digests are compared with
the files'. It does not choose files (`files.find_files` does) and does not make datasets of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from trainwright.connection import ApiError, Connection, DigestMismatchError
from trainwright.contracts.api.uploads import Upload
from trainwright.files import LocalFile

STRETCH_BYTES = 64 << 20
"""Of one request."""

PATIENCE_SECONDS = 900.0
"""How long sending goes on without a byte more at the server."""

BACK_OFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
MEMORY_SECONDS = 48 * 3600.0
"""Longer than uploads live."""

PROTOCOL = {"Tus-Resumable": "1.0.0"}
GONE = frozenset({404, 410})
GOES_ON = frozenset({408, 409, 423, 429, 460, 500, 502, 503, 504, 507})
"""Refusals after which the server is asked for the offset, and the sending goes on."""


class FileChangedError(Exception):
    """A file is not what it was when its sending began."""


class Sender:
    """Sends files to one team.

    Args:
        connection: to the server.
        path: address of the team's uploads below the API.
        memory: where unfinished uploads are remembered; in the user's cache folder when left out.
    """

    def __init__(self, connection: Connection, path: str, memory: Memory | None = None) -> None:
        self._connection = connection
        self._path = path
        self._memory = memory or Memory.of_user()

    def send(self, files: Sequence[LocalFile], on_bytes: Callable[[int], None]) -> list[str]:
        """Send files, or the rest of them; returns the ids of the complete uploads, in order.

        Raises:
            ApiError: the server refuses a file.
            FileChangedError: a file changed meanwhile.
            DigestMismatchError: the server has other bytes than the file.
        """
        ids = [self._send(file, on_bytes) for file in files]
        digests = {upload.id: upload.digest for upload in self._connection.get_list(self._path, Upload)}
        for file, upload in zip(files, ids, strict=True):
            if digests.get(upload) != file.digest():
                self.drop(file, upload)
                raise DigestMismatchError(
                    f"{file.name}: SHA-256 is {file.digest()} here and {digests.get(upload)} at the server. Send it again."
                )
        return ids

    def drop(self, file: LocalFile, upload: str) -> None:
        """Delete an upload and forget it."""
        self._call("DELETE", upload)
        self.forget([file])

    def forget(self, files: Sequence[LocalFile]) -> None:
        """Let the next sending of these files begin anew; done when a dataset has taken their uploads."""
        for file in files:
            self._memory.forget(self._fingerprint(file))

    def _send(self, file: LocalFile, on_bytes: Callable[[int], None]) -> str:
        upload, offset = self._begin(file)
        on_bytes(offset)
        tries, last_progress = 0, time.monotonic()
        while offset < file.size_bytes:
            if file.has_changed():
                self.drop(file, upload)
                raise FileChangedError(f"{file.path} changed while it was sent. Send it again.")
            before = offset
            try:
                offset = self._send_stretch(file, upload, offset)
            except (httpx.TransportError, ApiError) as error:
                _raise_unless_it_goes_on(error, last_progress)
                time.sleep(BACK_OFF_SECONDS[min(tries, len(BACK_OFF_SECONDS) - 1)])
                tries += 1
                offset = self._offset_patiently(upload, last_progress)
            on_bytes(offset - before)
            if offset > before:
                tries, last_progress = 0, time.monotonic()
        return upload

    def _begin(self, file: LocalFile) -> tuple[str, int]:
        """An upload for the file, the one that was begun earlier if it is there, and how much of it."""
        fingerprint = self._fingerprint(file)
        upload = self._memory.find(fingerprint)
        if upload is not None:
            try:
                return upload, self._offset_patiently(upload, time.monotonic())
            except ApiError as error:
                if error.status not in GONE:
                    raise
        upload = self._create(file)
        self._memory.keep(fingerprint, upload)
        return upload, 0

    def _create(self, file: LocalFile) -> str:
        named = base64.b64encode(file.name.encode()).decode()
        headers = {"Upload-Length": str(file.size_bytes), "Upload-Metadata": f"filename {named}"}
        answer = self._connection.repeat("POST", self._path, PROTOCOL | headers)
        return answer.headers["Location"].rpartition("/")[2]

    def _send_stretch(self, file: LocalFile, upload: str, offset: int) -> int:
        count = min(STRETCH_BYTES, file.size_bytes - offset)
        headers = {
            "Upload-Offset": str(offset),
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(count),
        }
        return _offset(self._call("PATCH", upload, headers, file.read(offset, count)))

    def _offset_patiently(self, upload: str, since: float) -> int:
        tries = 0
        while True:
            try:
                return _offset(self._call("HEAD", upload))
            except (httpx.TransportError, ApiError) as error:
                _raise_unless_it_goes_on(error, since)
            time.sleep(BACK_OFF_SECONDS[min(tries, len(BACK_OFF_SECONDS) - 1)])
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
        said = [
            self._connection.server,
            self._path,
            file.name,
            str(file.path.resolve()),
            file.size_bytes,
            file.changed,
        ]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


@dataclass(frozen=True)
class Memory:
    """Which upload belongs to which file, in a small file of its own."""

    path: Path

    @classmethod
    def of_user(cls) -> Memory:
        """In the user's cache folder (`XDG_CACHE_HOME`)."""
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(base) / "trainwright" / "uploads.json")

    def find(self, fingerprint: str) -> str | None:
        entry = self._read().get(fingerprint)
        return entry["upload"] if entry is not None else None

    def keep(self, fingerprint: str, upload: str) -> None:
        self._write(self._read() | {fingerprint: {"upload": upload, "time": time.time()}})

    def forget(self, fingerprint: str) -> None:
        entries = self._read()
        if entries.pop(fingerprint, None) is not None:
            self._write(entries)

    def _read(self) -> dict[str, dict[str, Any]]:
        """What is remembered and still worth asking for; a damaged file is an empty one."""
        try:
            entries = json.loads(self.path.read_text())
            oldest = time.time() - MEMORY_SECONDS
            return {key: one for key, one in entries.items() if one["time"] > oldest and one["upload"]}
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return {}

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{uuid4().hex}")
        partial.write_text(json.dumps(entries))
        partial.replace(self.path)


def _offset(answer: httpx.Response) -> int:
    return int(answer.headers["Upload-Offset"])


def _raise_unless_it_goes_on(error: httpx.TransportError | ApiError, last_progress: float) -> None:
    if isinstance(error, ApiError) and error.status not in GOES_ON:
        raise error
    if time.monotonic() - last_progress > PATIENCE_SECONDS:
        raise error
