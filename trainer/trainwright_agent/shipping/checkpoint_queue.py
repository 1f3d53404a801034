"""The checkpoints of an attempt on their way to the store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.job_spec import CHECKPOINTS_FOLDER, OUTPUT_FOLDER, JobSpec
from trainwright_agent.client import (
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

    Of a run on several nodes, each uploads its own files; the first node, which ships the events, commits.
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
        """Whether all announced checkpoints were uploaded or given up."""
        return not self._is_sending() and not self._waiting

    def _is_sending(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _ready(self) -> bool:
        if not self._waiting or time.monotonic() < self._resting_until:
            return False
        return not self._job.is_first_node or self._waiting[0].end_offset <= self._stored_events()

    def _send(self) -> None:
        while self._ready():
            saved = self._waiting[0]
            try:
                self._upload_or_give_up(saved)
                self._folder.write_shipped_steps(self._shipped | {saved.line.step})
            except RunDeletedError:
                return  # the shipper gets the same refusal, and acts on it
            except (UnreachableError, RefusedError, OSError) as error:
                log.warning(
                    "the checkpoint of step %d failed and will be retried: %s", saved.line.step, error
                )
                self._resting_until = time.monotonic() + self._backoff.next_seconds()
                return
            self._backoff.reset()
            self._shipped.add(saved.line.step)
            self._waiting.pop(0)

    def _upload_or_give_up(self, saved: SavedCheckpoint) -> None:
        try:
            self._upload(saved)
        except StaleFenceError as error:
            log.info("the checkpoint of step %d is no longer needed: %s", saved.line.step, error)
        except DamagedCheckpointError as error:
            log.error("the checkpoint of step %d is damaged: %s", saved.line.step, error)
        except RefusedError as error:
            if not is_permanent(error):
                raise
            log.error("the checkpoint of step %d was refused: %s", saved.line.step, error)

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
