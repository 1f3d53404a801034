"""Uploads a checkpoint or an export: request links, hash and send the files that the store lacks, commit.

A trainer wrote the folder, so nothing in it is trusted: the manifest must have the announced digest, every name in it
must be a plain file name, and every file must be a regular one with the manifest's size and digest. A second commit is
harmless, and files that the store has are not sent again, so an interrupted upload is simply repeated.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from trainwright.contracts.agent_protocol import CheckpointCommit, UploadLink, UploadRequest
from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, FileEntry, digest_of
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.token_shards import MANIFEST_NAME
from trainwright.durable_files import SHARED, rename_durably
from trainwright_agent.client import Client, RefusedError
from trainwright_agent.file_copies import copy_file
from trainwright_agent.untrusted_files import (
    opened_file,
    opened_folder,
    read_chunk,
    read_small,
)

log = logging.getLogger(__name__)

_MANIFEST_LIMIT_BYTES = 256 * 2**20
_BLOCK_BYTES = 2**20
_TRIES = 3
_RETRIED_CODES = ("checkpoint_incomplete", "not_announced")
"""Refusals of a commit after which the upload is repeated, a few times."""


class DamagedCheckpointError(Exception):
    """The folder does not match its manifest or the line that announced it."""


class Part(Enum):
    """The part of a node in uploading a checkpoint."""

    ALL = auto()
    """It has and sends all files, and commits."""
    OWN_AND_COMMIT = auto()
    """It sends the files that it has; the commit is refused until the other nodes have sent theirs."""
    OWN = auto()
    """It sends the files that it has. The run's first node commits."""


@dataclass(frozen=True)
class Upload:
    """The checkpoint to upload, and its required properties."""

    kind: CheckpointKind
    step: int | None = None
    """The announced step; None accepts the manifest's."""

    digest: str | None = None
    """The announced digest of the manifest; None accepts any."""

    events_offset: int = 0
    """The API commits only after it has stored the events up to this offset."""


class Uploader:
    """Uploads the checkpoints of one attempt.

    Args:
        client: client of the API.
        run_id: the run.
        fence: the attempt's fence.
        object_store: the store's folder, if it is on this disk.
    """

    def __init__(self, client: Client, run_id: str, fence: int, object_store: Path | None) -> None:
        self._client = client
        self._run_id = run_id
        self._fence = fence
        self._object_store = object_store

    def upload(
        self,
        upload: Upload,
        part: Part,
        root: Path,
        *names: str,
    ) -> None:
        """Upload the folder ``root/names…``, and commit it if this node must do so.

        Args:
            upload: what is uploaded.
            part: which files this node has, and whether it commits.
            root: the attempt's folder.
            names: path below it.

        Raises:
            DamagedCheckpointError: the folder must not be sent.
            ApiError: the API refused or is unreachable.
        """
        manifest, content = _read_manifest(root, *names)
        found = digest_of(content)
        if (
            upload.digest not in (None, found)
            or manifest.kind is not upload.kind
            or upload.step not in (None, manifest.step)
        ):
            raise DamagedCheckpointError("its manifest is not the announced one")
        files = [*manifest.files, FileEntry(name=MANIFEST_NAME, bytes=len(content), digest=found)]
        for entry in files:
            if not is_plain_name(entry.name):
                raise DamagedCheckpointError(f"its manifest names a file {entry.name!r}")
        request = UploadRequest(fence=self._fence, kind=upload.kind, step=manifest.step, files=files)
        commit = CheckpointCommit(
            fence=self._fence,
            kind=upload.kind,
            step=manifest.step,
            manifest_digest=found,
            events_offset=upload.events_offset,
        )
        for tries_left in reversed(range(_TRIES)):
            try:
                self._send(request, part, root, *names)
                if part is not Part.ALL:
                    self._verify_sent(request, part, root, *names)
                if part is not Part.OWN:
                    self._client.commit_checkpoint(self._run_id, commit)
                return
            except RefusedError as error:
                if error.code not in _RETRIED_CODES or not tries_left:
                    raise
                log.warning("step %d: asking for links again: %s", commit.step, error)
                self._leave_object_store()

    def _verify_sent(self, request: UploadRequest, part: Part, root: Path, *names: str) -> None:
        """Send again over HTTP what the server's store still lacks: other nodes' files keep the commit from telling."""
        if self._object_store is not None and self._own_links(request, part, root, *names):
            self._leave_object_store()
            self._send(request, part, root, *names)

    def _leave_object_store(self) -> None:
        if self._object_store is not None:
            log.error(
                "%s IS NOT THE SERVER'S OBJECT FOLDER, or it lost files: sending over HTTP. Correct --object-store.",
                self._object_store,
            )
            self._object_store = None

    def _send(self, request: UploadRequest, part: Part, root: Path, *names: str) -> None:
        """Send the files that the store lacks and this node has."""
        entries = {entry.name: entry for entry in request.files}
        for link in self._own_links(request, part, root, *names):
            self._send_file(link, entries[link.name], root, *names)

    def _own_links(self, request: UploadRequest, part: Part, root: Path, *names: str) -> list[UploadLink]:
        """Links for the files that the store lacks and this node has."""
        links = self._client.request_uploads(self._run_id, request).links
        if part is Part.ALL:
            return links
        with opened_folder(root, *names) as folder:
            own = set(os.listdir(folder))  # noqa: PTH208 - of a descriptor, which no path replaces
        return [link for link in links if link.name in own]

    def _send_file(self, link: UploadLink, entry: FileEntry, root: Path, *names: str) -> None:
        with _opened(entry, root, *names) as descriptor:
            if self._object_store is not None and _try_store(self._object_store, link, entry, descriptor):
                return
            _verify(entry, descriptor)
            self._client.put(link.url, descriptor, entry.bytes)


def delete_checkpoint(root: Path, *names: str) -> None:
    """Delete the files of a checkpoint's folder, then the folder, without following symlinks."""
    try:
        with opened_folder(root, *names) as folder:
            for name in os.listdir(folder):  # noqa: PTH208 - of a descriptor, which no path replaces
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
        with opened_folder(root, *names[:-1]) as parent:
            os.rmdir(names[-1], dir_fd=parent)
    except FileNotFoundError:
        log.debug("%s is already gone", "/".join(names))
    except OSError as error:
        log.warning("cannot delete %s: %s", "/".join(names), error)


def _read_manifest(root: Path, *names: str) -> tuple[CheckpointManifest, bytes]:
    content = read_small(root, *names, MANIFEST_NAME, limit_bytes=_MANIFEST_LIMIT_BYTES)
    if content is None:
        raise DamagedCheckpointError("it has no readable manifest")
    try:
        return CheckpointManifest.model_validate_json(content), content
    except ValidationError as error:
        raise DamagedCheckpointError(f"its manifest is invalid: {error}") from error


@contextmanager
def _opened(entry: FileEntry, root: Path, *names: str) -> Iterator[int]:
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(opened_file(root, *names, entry.name))
        except OSError as error:
            raise DamagedCheckpointError(f"{entry.name} cannot be read: {error}") from error
        yield descriptor


def _verify(entry: FileEntry, descriptor: int) -> None:
    """Verify the file against the manifest."""
    try:
        found = os.fstat(descriptor).st_size, _digest(descriptor)
    except OSError as error:
        raise DamagedCheckpointError(f"{entry.name} cannot be read: {error}") from error
    if found != (entry.bytes, entry.digest):
        raise DamagedCheckpointError(f"{entry.name} does not match the manifest")


def _digest(descriptor: int) -> str:
    sha, offset = hashlib.sha256(), 0
    while block := read_chunk(descriptor, offset, _BLOCK_BYTES):
        sha.update(block)
        offset += len(block)
    return sha.hexdigest()


def _try_store(store: Path, link: UploadLink, entry: FileEntry, descriptor: int) -> bool:
    """Try to copy the open file into the store; returns False if that fails for any reason but the file itself.

    Whether this folder really is the store shows at the commit.
    """
    parts = link.object_key.split("/")
    if not all(map(is_plain_name, parts)):
        raise DamagedCheckpointError(f"the platform names an object {link.object_key!r}")
    if not store.is_dir():
        log.error("OBJECT FOLDER %s DOES NOT EXIST: sending over HTTP. Correct --object-store.", store)
        return False
    try:
        _copy_into(store.joinpath(*parts), entry, descriptor)
    except OSError as error:
        if error.errno != errno.ENOENT:  # the store deletes the folders of runs that were deleted
            log.error("CANNOT WRITE TO --object-store %s: sending over HTTP: %s", store, error)
        return False
    return True


def _copy_into(target: Path, entry: FileEntry, descriptor: int) -> None:
    """Copy the open file to ``target``, and verify the copy: the trainer may still write to its own file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"_{uuid4().hex}.tmp")
    try:
        copy = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SHARED)
        try:
            copy_file(descriptor, copy, entry.bytes)
            _verify(entry, copy)
            os.fsync(copy)
        finally:
            os.close(copy)
        rename_durably(draft, target)
    finally:
        draft.unlink(missing_ok=True)
