"""Sending a checkpoint or an export: ask for links, hash and send what the store lacks, commit.

The folder was written by a trainer, so nothing in it is believed: the manifest must have the digest that was
announced, every name in it must be a plain file name, every file a regular one with the manifest's size and digest.
Committing again what is committed is harmless, and files the store holds are not sent again, so a broken-off
upload is simply repeated.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from trainwright.contracts.agent_protocol import CheckpointCommit, UploadLink, UploadRequest
from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, FileEntry, digest_of
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.shards import MANIFEST_NAME
from trainwright_agent.client import Client, RefusedError
from trainwright_agent.files import (
    opened_file,
    opened_folder,
    read_small,
    read_stretch,
    sync_folder,
)

log = logging.getLogger(__name__)

_MANIFEST_LIMIT_BYTES = 256 * 2**20
_PIECE_BYTES = 2**20
_TRIES = 3
_ASK_AGAIN = ("checkpoint_incomplete", "not_announced")
"""Refusals of a commit after which the files are announced anew, a few times."""


_ANOTHER_DISK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOENT)
"""Why a link cannot be made although the store's folder is in order."""


class DamagedCheckpointError(Exception):
    """The folder is not what its manifest, or the line that announced it, says."""


class Uploader:
    """Sends the checkpoints of one attempt.

    Args:
        client: the API.
        run_id: the run.
        fence: the attempt's.
        object_store: the store's folder when it is on this disk.
    """

    def __init__(self, client: Client, run_id: str, fence: int, object_store: Path | None) -> None:
        self._client = client
        self._run_id = run_id
        self._fence = fence
        self._object_store = object_store

    def upload(
        self,
        kind: CheckpointKind,
        step: int | None,
        digest: str | None,
        events_offset: int,
        root: Path,
        *names: str,
    ) -> None:
        """Send the folder ``root/names…`` and commit it.

        Args:
            kind: state or export.
            step: as announced; None: as the manifest says.
            digest: of the manifest, as announced; None: as it is.
            events_offset: the API must hold the events up to here before it commits.
            root: the attempt's folder.
            names: below it.

        Raises:
            DamagedCheckpointError: it must not be sent.
            ApiError: refused, or not reachable.
        """
        manifest, content = _read_manifest(root, *names)
        found = digest_of(content)
        if digest not in (None, found) or manifest.kind is not kind or step not in (None, manifest.step):
            raise DamagedCheckpointError("its manifest is not the announced one")
        files = [*manifest.files, FileEntry(name=MANIFEST_NAME, bytes=len(content), digest=found)]
        for entry in files:
            if not is_plain_name(entry.name):
                raise DamagedCheckpointError(f"its manifest names a file {entry.name!r}")
        request = UploadRequest(fence=self._fence, kind=kind, step=manifest.step, files=files)
        commit = CheckpointCommit(
            fence=self._fence,
            kind=kind,
            step=manifest.step,
            manifest_digest=found,
            events_offset=events_offset,
        )
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._send_and_commit(request, commit, root, *names)
            except RefusedError as error:
                if error.code not in _ASK_AGAIN or not tries_left:
                    raise
                log.warning("step %d: asking for links again: %s", commit.step, error)
                if self._object_store is not None:
                    log.error(
                        "%s IS NOT THE SERVER'S OBJECT FOLDER, or it lost files: sending over HTTP. Correct"
                        " --object-store.",
                        self._object_store,
                    )
                    self._object_store = None

    def _send_and_commit(
        self, request: UploadRequest, commit: CheckpointCommit, root: Path, *names: str
    ) -> None:
        entries = {entry.name: entry for entry in request.files}
        for link in self._client.request_uploads(self._run_id, request).links:
            self._send(link, entries[link.name], root, *names)
        self._client.commit_checkpoint(self._run_id, commit)

    def _send(self, link: UploadLink, entry: FileEntry, root: Path, *names: str) -> None:
        with _verified(entry, root, *names) as descriptor:
            if self._object_store is None or not _is_linked(self._object_store, link, descriptor):
                self._client.put(link.url, descriptor, entry.bytes)


def delete_checkpoint(root: Path, *names: str) -> None:
    """Delete the files of a checkpoint's folder, then the folder, following no symlink."""
    try:
        with opened_folder(root, *names) as folder:
            for name in os.listdir(folder):  # noqa: PTH208 - of a descriptor, which no path replaces
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
        with opened_folder(root, *names[:-1]) as parent:
            os.rmdir(names[-1], dir_fd=parent)
    except FileNotFoundError:
        log.debug("%s is gone already", "/".join(names))
    except OSError as error:
        log.warning("%s stays: %s", "/".join(names), error)


def _read_manifest(root: Path, *names: str) -> tuple[CheckpointManifest, bytes]:
    content = read_small(root, *names, MANIFEST_NAME, limit_bytes=_MANIFEST_LIMIT_BYTES)
    if content is None:
        raise DamagedCheckpointError("it has no readable manifest")
    try:
        return CheckpointManifest.model_validate_json(content), content
    except ValidationError as error:
        raise DamagedCheckpointError(f"its manifest is none: {error}") from error


@contextmanager
def _verified(entry: FileEntry, root: Path, *names: str) -> Iterator[int]:
    """A descriptor of the file, which is what the manifest says."""
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(opened_file(root, *names, entry.name))
            found = os.fstat(descriptor).st_size, _digest(descriptor)
        except OSError as error:
            raise DamagedCheckpointError(f"{entry.name} cannot be read: {error}") from error
        if found != (entry.bytes, entry.digest):
            raise DamagedCheckpointError(f"{entry.name} is not what the manifest says")
        yield descriptor


def _digest(descriptor: int) -> str:
    sha, offset = hashlib.sha256(), 0
    while piece := read_stretch(descriptor, offset, _PIECE_BYTES):
        sha.update(piece)
        offset += len(piece)
    return sha.hexdigest()


def _is_linked(store: Path, link: UploadLink, descriptor: int) -> bool:
    """Try to give the open file a name in the store; false when that does not work, for whatever reason.

    Whether this folder really is the store, the commit tells.
    """
    parts = link.object_key.split("/")
    if not all(map(is_plain_name, parts)):
        raise DamagedCheckpointError(f"the platform names an object {link.object_key!r}")
    if not store.is_dir():
        log.error("THERE IS NO OBJECT FOLDER %s: sending over HTTP. Correct --object-store.", store)
        return False
    try:
        _link_into(store.joinpath(*parts), descriptor)
    except OSError as error:
        if error.errno not in _ANOTHER_DISK:
            log.error("--object-store %s CANNOT BE WRITTEN: sending over HTTP: %s", store, error)
        return False
    return True


def _link_into(target: Path, descriptor: int) -> None:
    """Give the open file the name ``target``.

    The very file that was hashed is linked, by its descriptor: a path could lead elsewhere by now.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"_{uuid4().hex}.tmp")
    here = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # With a folder descriptor Python calls linkat, which follows the magic link to the file itself.
        os.link(str(descriptor), draft, src_dir_fd=here, follow_symlinks=True)
        os.fsync(descriptor)
        draft.replace(target)
    finally:
        os.close(here)
        # Renaming one name of a file over another name of it does nothing: the draft would stay.
        draft.unlink(missing_ok=True)
    sync_folder(target.parent)
