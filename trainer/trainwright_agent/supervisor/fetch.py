"""Fetches shards and the resume checkpoint into an attempt's folder. Every file is verified before it gets its name.

A shard is linked from the node's cache, which gets it from the object store, if that is on this disk, or by a download.
A resume checkpoint is used once and does not enter the cache. Files from the object store are copied, never linked, so
a trainer cannot change stored files. A damaged file is fetched again a few times. If a checkpoint stays damaged, the
attempt ends as `checkpoint_invalid`, and the platform uses the previous one.

The links to the files are valid for a limited time, and fetching may take longer. When one is refused, the request that
granted the files is repeated, which signs new links.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from trainwright.contracts.agent_protocol import Download
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.job_spec import DATA_FOLDER, RESUME_FOLDER
from trainwright.durable_files import is_disk_full
from trainwright_agent.client import (
    Backoff,
    Client,
    LinkRefusedError,
    MissingBytesError,
    RefusedError,
    RunDeletedError,
    UnreachableError,
)
from trainwright_agent.file_copies import copy_file

log = logging.getLogger(__name__)

_TRIES = 3
_BLOCK_BYTES = 2**20
_DRAFT = "."
"""First character of the name of a file that is being fetched."""
_DRAFT_LIFETIME_SECONDS = 24 * 3_600.0
"""A draft that nobody has written to for this long was left by a killed supervisor."""


class FetchError(Exception):
    """A file could not be fetched; ``code`` is the attempt's end code."""

    def __init__(self, code: EndCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class _DamagedError(Exception):
    """The bytes do not match the announced digest or size."""


@dataclass(frozen=True)
class Fetcher:
    """The sources of files, and callbacks for progress."""

    client: Client
    cache: Path
    cache_limit_bytes: int
    object_store: Path | None
    on_progress: Callable[[str], None]
    """Called with a description of the current action, for people."""

    on_bytes: Callable[[], None]
    """Called when bytes arrived or were verified; only these count as progress."""

    renew_links: Callable[[], Sequence[Download]]
    """Repeats the request that granted the downloads; returns them with new links."""

    stopped: threading.Event
    _renewed: dict[str, str] = field(default_factory=dict, init=False)
    """The newest links, by object key, if those of the downloads were refused."""

    def fetch_all(self, downloads: Sequence[Download], folder: Path) -> None:
        """Fetch everything into ``folder``.

        Raises:
            FetchError: a file could not be fetched.
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
                return self._obtain(download, target)
            except (_DamagedError, RefusedError) as error:
                tries += 1
                log.warning("%s: %s", download.path, error)
                if tries >= _TRIES:
                    raise _fetch_error(download, error) from error
            except UnreachableError:
                return  # stopped
            except OSError as error:
                raise _fetch_error(download, error) from error
            self.stopped.wait(backoff.next_seconds())

    def _obtain(self, download: Download, target: Path) -> None:
        names = download.object_key.split("/")
        stored = None
        if self.object_store is not None and all(map(is_plain_name, names)):
            stored = self.object_store.joinpath(*names)
        if _target_folder(download) == RESUME_FOLDER:
            return self._copy_or_download(stored, download, target)
        cached = self.cache / download.digest
        try:
            if self._link_verified(cached, download, target):
                os.utime(target)  # the same inode, whose time decides what to evict
                return
        except _DamagedError:
            cached.unlink(missing_ok=True)
        self._copy_or_download(stored, download, cached)
        if not _link(cached, target):
            raise _DamagedError("it was evicted at once: the cache's limit is too small")

    def _copy_or_download(self, stored: Path | None, download: Download, target: Path) -> None:
        if stored is None or not self._copy_verified(stored, download, target):
            self._download(download, target)

    def _copy_verified(self, source: Path, download: Download, target: Path) -> bool:
        """Copy ``source`` under a temporary name, verify the copy, and rename it; False if ``source`` does not exist."""
        draft = target.with_name(f"{_DRAFT}{target.name}.{uuid4().hex}")
        try:
            with source.open("rb") as file, draft.open("xb") as copy:
                copy_file(file.fileno(), copy.fileno(), download.bytes)
            self._verify(draft, download)
            draft.rename(target)
        except FileNotFoundError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        return True

    def _link_verified(self, source: Path, download: Download, target: Path) -> bool:
        """Link ``source`` into the attempt's folder and verify it; returns False if ``source`` does not exist."""
        # Linked before hashing, so that the verified file is the one that is used.
        if not _link(source, target):
            return False
        try:
            self._verify(target, download)
        except _DamagedError:
            target.unlink()
            raise
        return True

    def _verify(self, path: Path, download: Download) -> None:
        verification = _Verification(download, self.on_bytes)
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                verification.add(block)
        verification.finish()

    def _download(self, download: Download, target: Path) -> None:
        """Download ``target``. A download that breaks off continues with the next byte, until the start times out."""
        draft = target.with_name(f"{_DRAFT}{target.name}.{uuid4().hex}")
        verification = _Verification(download, self.on_bytes)
        backoff = Backoff(0.2, 10.0)
        refused: str | None = None
        try:
            with draft.open("xb") as file:

                def write(block: bytes) -> None:
                    nonlocal refused
                    verification.add(block)
                    file.write(block)
                    backoff.reset()
                    refused = None

                while verification.lacks_bytes:
                    try:
                        link = self._link(download, refused)
                        self.client.get(link, write, verification.bytes)
                        if verification.lacks_bytes:
                            raise UnreachableError("the response ended early")
                    except MissingBytesError as error:
                        raise _DamagedError(f"only {verification.bytes} bytes") from error
                    except LinkRefusedError:
                        if refused is not None:
                            raise  # a new link is refused too
                        refused = link
                    except UnreachableError as error:
                        log.warning("%s, after %d bytes: %s", download.path, verification.bytes, error)
                        if self.stopped.wait(backoff.next_seconds()):
                            raise
            verification.finish()
            draft.rename(target)
        finally:
            draft.unlink(missing_ok=True)

    def _link(self, download: Download, refused: str | None) -> str:
        """The newest link to a file; a new one if ``refused`` is the newest that is known."""
        link = self._renewed.get(download.object_key, download.url)
        if link != refused:
            return link
        log.info("the link to %s has expired; requesting new links", download.path)
        self._renewed.update((renewed.object_key, renewed.url) for renewed in self.renew_links())
        return self._renewed.get(download.object_key, download.url)


class _Verification:
    """Counts and hashes the bytes of a file as they arrive."""

    def __init__(self, download: Download, on_block: Callable[[], None]) -> None:
        self._download = download
        self._on_block = on_block
        self._sha = hashlib.sha256()
        self.bytes = 0

    @property
    def lacks_bytes(self) -> bool:
        return self.bytes < self._download.bytes

    def add(self, block: bytes) -> None:
        self._sha.update(block)
        self.bytes += len(block)
        if self.bytes > self._download.bytes:
            raise _DamagedError(f"more than the announced {self._download.bytes} bytes")
        self._on_block()

    def finish(self) -> None:
        if self.bytes != self._download.bytes:
            raise _DamagedError(f"{self.bytes} bytes instead of the announced {self._download.bytes}")
        if self._sha.hexdigest() != self._download.digest:
            raise _DamagedError("its SHA-256 is not the announced one")


def check_downloads(downloads: Sequence[Download]) -> None:
    """Refuse downloads to any path except directly in ``data/`` or ``resume/``.

    Raises:
        FetchError: with the path of such a download.
    """
    for download in downloads:
        digest_is_hex = len(download.digest) == 64 and set(download.digest) <= set("0123456789abcdef")
        if _target_folder(download) is None or not digest_is_hex:
            raise FetchError(
                EndCode.FETCH_FAILED, f"The claim names a file at {download.path!r}, which is not allowed."
            )


def trim_cache(cache: Path, limit_bytes: int) -> None:
    """Delete the least recently used files until the cache is within its limit.

    Files in use have other links. Files that another supervisor is fetching stay.
    """
    found = []
    for path in cache.iterdir():
        with suppress(FileNotFoundError):
            status = path.stat()
            if path.name.startswith(_DRAFT) and status.st_mtime > time.time() - _DRAFT_LIFETIME_SECONDS:
                continue
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
    """Link ``source`` to ``target``, or copy it across disks; returns False if it does not exist."""
    try:
        target.hardlink_to(source)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        shutil.copyfile(source, target)
    return True


def _fetch_error(download: Download, error: Exception) -> FetchError:
    if is_disk_full(error):
        return FetchError(
            EndCode.DISK_FULL, f"No space for {download.path} ({download.bytes:,} bytes) on the node."
        )
    damaged = isinstance(error, _DamagedError | RunDeletedError) and _target_folder(download) == RESUME_FOLDER
    code = EndCode.CHECKPOINT_INVALID if damaged else EndCode.FETCH_FAILED
    return FetchError(code, f"{download.path} could not be fetched: {error}")
