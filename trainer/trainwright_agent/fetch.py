"""Fetching shards and a resume checkpoint into an attempt's folder, each file checked by its digest before it has its name.

Three ways, by preference: linked out of the object store when that is on this disk; linked out of the node's cache of
shards; over HTTP. Resume checkpoints do not enter the cache: they are used once. What arrives damaged is
fetched again a few times; a checkpoint that stays damaged ends the attempt as `checkpoint_invalid`, so that the platform
takes the one before it.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from trainwright.contracts.agent_protocol import Download
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.job_spec import DATA_FOLDER, RESUME_FOLDER
from trainwright_agent.client import Backoff, Client, GoneError, RefusedError, UnreachableError
from trainwright_agent.files import is_disk_full

log = logging.getLogger(__name__)

_TRIES = 3
_PIECE_BYTES = 2**20


class FetchError(Exception):
    """A file could not be had; ``code`` is how the attempt ends."""

    def __init__(self, code: EndCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class _DamagedError(Exception):
    """The bytes are not those that were announced."""


@dataclass(frozen=True)
class Fetcher:
    """Where files come from, and who hears of progress."""

    client: Client
    cache: Path
    cache_limit_bytes: int
    object_store: Path | None
    on_progress: Callable[[str], None]
    """Called with what is being done, for people."""

    on_bytes: Callable[[], None]
    """Called whenever bytes arrived or were checked: only these count as progress."""

    stopped: threading.Event

    def fetch_all(self, downloads: Sequence[Download], folder: Path) -> None:
        """Fetch everything into ``folder``.

        Raises:
            FetchError: a file could not be had.
        """
        for noun, name in (("shards", DATA_FOLDER), ("checkpoint", RESUME_FOLDER)):
            (folder / name).mkdir(exist_ok=True)
            wanted = [download for download in downloads if _target_folder(download) == name]
            for number, download in enumerate(wanted, 1):
                self._fetch(download, folder, f"fetching {noun} {number} of {len(wanted)}")
        trim_cache(self.cache, self.cache_limit_bytes)

    def _fetch(self, download: Download, folder: Path, sentence: str) -> None:
        target = folder / download.path
        target.unlink(missing_ok=True)
        backoff, tries = Backoff(0.2, 10.0), 0
        while not self.stopped.is_set():
            self.on_progress(sentence)
            try:
                return self._place(download, target)
            except (_DamagedError, RefusedError) as error:
                tries += 1
                log.warning("%s: %s", download.path, error)
                if tries >= _TRIES:
                    raise _failure(download, error) from error
            except UnreachableError as error:
                # Tried until the time allowed for starting is over.
                log.warning("%s: %s", download.path, error)
            except OSError as error:
                raise _failure(download, error) from error
            self.stopped.wait(backoff.next_seconds())

    def _place(self, download: Download, target: Path) -> None:
        names = download.object_key.split("/")
        stored = self.object_store.joinpath(*names) if self.object_store else None
        if stored and all(map(is_plain_name, names)) and self._link_checked(stored, download, target):
            return
        if _target_folder(download) == RESUME_FOLDER:
            self._download(download, target)
            return
        cached = self.cache / download.digest
        try:
            if self._link_checked(cached, download, target):
                os.utime(target)  # the same file: trimming goes by its time
                return
        except _DamagedError:
            cached.unlink(missing_ok=True)
        self._download(download, cached)
        if not _link(cached, target):
            raise _DamagedError("it left the cache at once: the cache's limit is too small")

    def _link_checked(self, source: Path, download: Download, target: Path) -> bool:
        """Give ``source`` its name in the attempt's folder; false when there is no such file."""
        # Linked before it is hashed, so that what was checked is what is used.
        if not _link(source, target):
            return False
        try:
            checking = _Checking(download, self.on_bytes)
            with target.open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    checking.add(piece)
            checking.finish()
        except _DamagedError:
            target.unlink()
            raise
        return True

    def _download(self, download: Download, target: Path) -> None:
        draft = target.with_name(f".{target.name}.{uuid4().hex}")
        checking = _Checking(download, self.on_bytes)
        try:
            with draft.open("xb") as file:

                def write(piece: bytes) -> None:
                    checking.add(piece)
                    file.write(piece)

                self.client.get(download.url, write)
            checking.finish()
            draft.rename(target)
        finally:
            draft.unlink(missing_ok=True)


class _Checking:
    """Counts and hashes a file as it passes by."""

    def __init__(self, download: Download, on_piece: Callable[[], None]) -> None:
        self._download = download
        self._on_piece = on_piece
        self._sha = hashlib.sha256()
        self._bytes = 0

    def add(self, piece: bytes) -> None:
        self._sha.update(piece)
        self._bytes += len(piece)
        if self._bytes > self._download.bytes:
            raise _DamagedError(f"more than the announced {self._download.bytes} bytes")
        self._on_piece()

    def finish(self) -> None:
        if self._bytes != self._download.bytes:
            raise _DamagedError(f"{self._bytes} bytes instead of the announced {self._download.bytes}")
        if self._sha.hexdigest() != self._download.digest:
            raise _DamagedError("its SHA-256 is not the announced one")


def check_downloads(downloads: Sequence[Download]) -> None:
    """Refuse a download that would lie anywhere but right in ``data/`` or ``resume/``.

    Raises:
        FetchError: naming the path.
    """
    for download in downloads:
        digest_is_hex = len(download.digest) == 64 and set(download.digest) <= set("0123456789abcdef")
        if _target_folder(download) is None or not digest_is_hex:
            raise FetchError(
                EndCode.FETCH_FAILED, f"The claim names a file at {download.path!r}, which is not allowed."
            )


def trim_cache(cache: Path, limit_bytes: int) -> None:
    """Delete the files fetched or used longest ago until the cache fits. Those in use live on under other names."""
    found = []
    for path in cache.iterdir():
        with suppress(FileNotFoundError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit_bytes:
            return
        path.unlink(missing_ok=True)
        total -= size


def _target_folder(download: Download) -> str | None:
    folder, _, name = download.path.partition("/")
    return folder if folder in (DATA_FOLDER, RESUME_FOLDER) and is_plain_name(name) else None


def _link(source: Path, target: Path) -> bool:
    """Give ``source`` a second name, or copy it to another disk; false when there is no such file."""
    try:
        target.hardlink_to(source)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        shutil.copyfile(source, target)
    return True


def _failure(download: Download, error: Exception) -> FetchError:
    if is_disk_full(error):
        return FetchError(
            EndCode.DISK_FULL, f"No room for {download.path} ({download.bytes:,} bytes) on the node."
        )
    damaged = isinstance(error, _DamagedError | GoneError) and _target_folder(download) == RESUME_FOLDER
    code = EndCode.CHECKPOINT_INVALID if damaged else EndCode.FETCH_FAILED
    return FetchError(code, f"{download.path} could not be fetched: {error}")
