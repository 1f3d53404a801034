"""The queue of an attempt's checkpoints that must be uploaded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.job_spec import CHECKPOINTS_FOLDER, OUTPUT_FOLDER, JobSpec
from trainwright_agent.client import (
    AWAITING_NODES,
    Backoff,
    RefusedError,
    RunDeletedError,
    StaleFenceError,
    UnreachableError,
    is_permanent,
)
from trainwright_agent.shipping.uploader import (
    DamagedCheckpointError,
    Part,
    Upload,
    Uploader,
    delete_checkpoint,
)
from trainwright_agent.tail import SavedCheckpoint, saved_checkpoints
from trainwright_agent.workspace import AttemptFolder

log = logging.getLogger(__name__)


class CheckpointQueue:
    """Uploads state checkpoints in order, each after its events are stored, in a second thread of the shipper.

    Of a run on several nodes, each uploads its own files; the first node, which ships the events, commits. If another node
    cannot send its files of one checkpoint, the first node commits the next.
    """

    def __init__(
        self,
        folder: AttemptFolder,
        job: JobSpec,
        uploader: Callable[[], Uploader],
        stored_events: Callable[[], int],
    ) -> None:
        self._folder = folder
        self._job = job
        self._uploader = uploader
        self._stored_events = stored_events
        self._read_to = 0
        self._waiting: list[SavedCheckpoint] = []
        self._folders: dict[int, str] = {}
        """Announced folders by step, until they are deleted."""
        self._shipped = folder.shipped_steps()
        self._stored_step = -1
        """The newest checkpoint that was sent completely, on all nodes if this one commits."""
        self._thread: threading.Thread | None = None
        self._backoff = Backoff(0.5, 30.0)
        self._resting_until = 0.0

    def poll(self) -> None:
        """Queue newly announced checkpoints, and start the thread if it is not running."""
        try:
            found, self._read_to = saved_checkpoints(self._folder.path, self._read_to)
        except OSError:
            return
        self._folders.update({saved.line.step: saved.line.folder for saved in found})
        self._waiting += [saved for saved in found if saved.line.step not in self._shipped]
        if self._is_sending() or not self._ready():
            return
        self._thread = threading.Thread(target=self._send, name="checkpoints", daemon=True)
        self._thread.start()

    def is_drained(self) -> bool:
        """Whether all announced checkpoints were uploaded or abandoned."""
        return not self._is_sending() and not self._waiting

    def _is_sending(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _ready(self) -> list[SavedCheckpoint]:
        """The checkpoints that can be sent now, in order."""
        if time.monotonic() < self._resting_until:
            return []
        if not self._job.is_first_node:
            return list(self._waiting)
        stored = self._stored_events()
        return [saved for saved in self._waiting if saved.end_offset <= stored]

    def _send(self) -> None:
        try:
            while ready := self._ready():
                self._send_all(ready)
        except RunDeletedError:
            return  # the shipper gets the same refusal, and acts on it

    def _send_all(self, ready: Sequence[SavedCheckpoint]) -> None:
        """Send each checkpoint, in order. A checkpoint whose other files have not arrived does not delay later ones."""
        is_progress = False
        for saved in ready:
            try:
                if self._upload_or_give_up(saved):
                    self._stored_step = saved.line.step
                self._note_done(saved)
                is_progress = True
            except (UnreachableError, RefusedError, OSError) as error:
                log.warning("step %d: the checkpoint will be sent again: %s", saved.line.step, error)
                if not _awaits_nodes(error):
                    is_progress = False
                    break
        if is_progress:
            self._backoff.reset()
        else:
            self._resting_until = time.monotonic() + self._backoff.next_seconds()

    def _note_done(self, saved: SavedCheckpoint) -> None:
        self._folder.write_shipped_steps(self._shipped | {saved.line.step})
        self._shipped.add(saved.line.step)
        self._waiting.remove(saved)

    def _upload_or_give_up(self, saved: SavedCheckpoint) -> bool:
        """Return whether the checkpoint is stored; otherwise it never will be."""
        try:
            self._upload(saved)
        except StaleFenceError as error:
            log.info("the checkpoint of step %d is no longer needed: %s", saved.line.step, error)
        except DamagedCheckpointError as error:
            log.error("the checkpoint of step %d is damaged: %s", saved.line.step, error)
        except RefusedError as error:
            # Each node sends its checkpoints in order: of those before a stored one, it has sent all files that it can.
            is_given_up = _awaits_nodes(error) and saved.line.step < self._stored_step
            if not is_permanent(error) and not is_given_up:
                raise
            log.error("the checkpoint of step %d was refused: %s", saved.line.step, error)
        else:
            return True
        return False

    def _upload(self, saved: SavedCheckpoint) -> None:
        line = saved.line
        if not is_plain_name(line.folder):
            raise DamagedCheckpointError(f"its folder is named {line.folder!r}")
        root, names = self._folder.path, (OUTPUT_FOLDER, CHECKPOINTS_FOLDER)
        upload = Upload(CheckpointKind.STATE, line.step, line.digest, saved.end_offset)
        self._uploader().upload(upload, self._part(), root, *names, line.folder)
        self._delete_older(line.step)

    def _part(self) -> Part:
        if self._job.nodes == 1:
            return Part.ALL
        return Part.OWN_AND_COMMIT if self._job.is_first_node else Part.OWN

    def _delete_older(self, step: int) -> None:
        """Delete uploaded checkpoints before ``step``. The newest stays, because the export reads it."""
        for older in [known for known in list(self._folders) if known < step and known in self._shipped]:
            folder = self._folders.pop(older)
            if is_plain_name(folder):
                delete_checkpoint(self._folder.path, OUTPUT_FOLDER, CHECKPOINTS_FOLDER, folder)


def _awaits_nodes(error: Exception) -> bool:
    """Whether only files of other nodes are missing."""
    return isinstance(error, RefusedError) and error.code == AWAITING_NODES
