"""Shipping one attempt: its events, logs and checkpoints as they grow, and at last its end.

One thread an attempt sends events and logs; checkpoints, which can take minutes, have a second one beside it, so that
charts stay live. The order at the end is the protocol's: the rest of the events and logs, complete checkpoints, the
export, then the report. What was sent is known by the API alone, so an agent that starts asks and reads on.

A shipper may be killed at any instruction and started again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainwright.contracts.agent_protocol import Claim, EndReport
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.job_spec import (
    CHECKPOINTS_FOLDER,
    EVENTS_NAME,
    EXPORT_FOLDER,
    OUTPUT_FOLDER,
    Outcome,
)
from trainwright_agent.client import (
    Backoff,
    Client,
    GoneError,
    RefusedError,
    StaleFenceError,
    UnreachableError,
    WrongOffsetError,
)
from trainwright_agent.tail import (
    STRETCH_BYTES,
    SavedCheckpoint,
    log_names,
    read_batch,
    read_log,
    saved_checkpoints,
)
from trainwright_agent.uploads import DamagedCheckpointError, Uploader, delete_checkpoint
from trainwright_agent.workspace import AttemptFolder

log = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 1.0


class Shipper:
    """Ships one attempt in a thread of its own until its end is accepted, or refused for good.

    Args:
        folder: the attempt's.
        claim: what was granted for it.
        connect: gives a client; the API may move.
        object_store: the store's folder when it is on this disk.
    """

    def __init__(
        self,
        folder: AttemptFolder,
        claim: Claim,
        connect: Callable[[], Client],
        object_store: Path | None,
    ) -> None:
        self._folder = folder
        self._claim = claim
        self._run_id = claim.job.run_id
        self._connect = connect
        self._client = connect()
        self._object_store = object_store
        self.is_settled = False
        """Nothing is left to do for the folder: its end was accepted or is not wanted any more."""
        self._offsets: dict[str, int] = {}
        self._careful_until = 0
        """Up to this offset events go line by line: there a stretch was refused."""
        self._refused_logs: set[str] = set()
        self._exported = False
        self._pause_seconds = min(_LONGEST_PAUSE_SECONDS, claim.timers.heartbeat_seconds / 5)
        self._thread = threading.Thread(target=self._run, name=f"ship {folder.claim_id[:8]}", daemon=True)
        self._checkpoints = _Checkpoints(folder, self._uploader, self._stored_events)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        backoff = Backoff(self._pause_seconds, 5.0)
        while True:
            try:
                if self._ship():
                    self.is_settled = True
                    return
                backoff.reset()
                time.sleep(self._pause_seconds)
            except (UnreachableError, OSError) as error:
                log.warning("%s: not shipped: %s", self._run_id, error)
                self._client = self._connect()
                time.sleep(backoff.next_seconds())
            except GoneError:
                log.info("%s was deleted", self._run_id)
                self.is_settled = True
                return
            except RefusedError as error:
                log.error("%s: refused: %s", self._run_id, error)
                time.sleep(backoff.next_seconds())

    def _ship(self) -> bool:
        """Send what is new; true when nothing is left to do for the attempt."""
        # First of all: what is written after exit.json is nobody's, and all before it is sent below.
        exit = self._folder.exit()
        try:
            if not self._offsets:
                stored = self._client.offsets(self._run_id, self._claim.attempt)
                self._offsets = {EVENTS_NAME: 0} | stored.files
            self._ship_events()
            self._ship_logs()
        except StaleFenceError as error:
            log.info("%s: a later attempt has begun: %s", self._run_id, error)
            return exit is not None
        self._checkpoints.begin()
        if exit is None or not self._checkpoints.are_done():
            return False
        return self._report(self._finish_export(exit))

    def _ship_events(self) -> None:
        while True:
            offset = self._offsets[EVENTS_NAME]
            limit_bytes = 1 if offset < self._careful_until else STRETCH_BYTES
            try:
                batch = read_batch(
                    self._folder.path, self._claim.attempt, self._claim.fence, offset, limit_bytes
                )
            except OSError as error:
                log.error("%s: the events are not safe to read: %s", self._run_id, error)
                return
            if batch is None:
                return
            try:
                stored = self._client.send_batch(self._run_id, batch).offset
            except WrongOffsetError as error:
                stored = error.offset
            except RefusedError as error:
                if not _is_for_good(error):
                    raise
                if limit_bytes > 1:
                    self._careful_until = batch.next_offset
                    continue
                log.error("%s: dropped the line of events at %d: %s", self._run_id, offset, error)
                nothing = batch.model_copy(update={"events": [], "metrics": []})
                stored = self._client.send_batch(self._run_id, nothing).offset
            self._offsets[EVENTS_NAME] = stored

    def _ship_logs(self) -> None:
        for name in log_names(self._folder.path):
            while name not in self._refused_logs and (content := self._read_log(name)):
                offset = self._offsets.get(name, 0)
                try:
                    stored = self._client.send_log(
                        self._run_id, name, self._claim.attempt, self._claim.fence, offset, content
                    )
                    self._offsets[name] = stored.offset
                except WrongOffsetError as error:
                    self._offsets[name] = error.offset
                except RefusedError as error:
                    if not _is_for_good(error):
                        raise
                    log.warning("%s: %s is not kept any further: %s", self._run_id, name, error)
                    self._refused_logs.add(name)

    def _read_log(self, name: str) -> bytes:
        try:
            return read_log(self._folder.path, name, self._offsets.get(name, 0))
        except OSError as error:
            log.warning("%s: %s is not safe to read: %s", self._run_id, name, error)
            return b""

    def _finish_export(self, exit: Outcome) -> Outcome:
        """Send the export of a success; an export that must not be sent makes it a failure."""
        if exit.code is not EndCode.FINISHED or self._exported:
            return exit
        try:
            self._uploader().upload(
                CheckpointKind.EXPORT, None, None, 0, self._folder.path, OUTPUT_FOLDER, EXPORT_FOLDER
            )
        except StaleFenceError as error:
            log.info("%s: the export is not wanted any more: %s", self._run_id, error)
        except (DamagedCheckpointError, RefusedError) as error:
            if isinstance(error, RefusedError) and not _is_for_good(error):
                raise
            message = f"The export was not sent: {error}."
            return Outcome(code=EndCode.EXPORT_FAILED, message=message, step=exit.step)
        self._exported = True
        return exit

    def _report(self, exit: Outcome) -> bool:
        report = EndReport(
            claim_id=self._claim.claim_id, fence=self._claim.fence, exit=exit, offsets=self._final_offsets()
        )
        try:
            ended = self._client.report_end(self._run_id, report)
        except StaleFenceError as error:
            log.info("%s: the end is not wanted any more: %s", self._run_id, error)
            return True
        except RefusedError as error:
            if error.code not in ("file_short", "not_exported"):
                raise
            log.warning("%s: shipping again: %s", self._run_id, error)
            self._offsets, self._exported = {}, False
            return False
        log.info("%s: end accepted (%s), the run is %s", self._run_id, exit.code, ended.state)
        return True

    def _final_offsets(self) -> dict[str, int]:
        """Size of each file as far as it was sent: all of it, a torn last line apart."""
        return {name: offset for name, offset in self._offsets.items() if offset > 0}

    def _uploader(self) -> Uploader:
        return Uploader(self._connect(), self._run_id, self._claim.fence, self._object_store)

    def _stored_events(self) -> int:
        return self._offsets.get(EVENTS_NAME, 0)


def _is_for_good(error: RefusedError) -> bool:
    """Whether this one thing is refused for good, and not the whole attempt, or only for now."""
    return not (error.may_pass_later or isinstance(error, GoneError | StaleFenceError))


class _Checkpoints:
    """The second thread of a shipper: state checkpoints, one after the other, each when its events are stored."""

    def __init__(
        self, folder: AttemptFolder, uploader: Callable[[], Uploader], stored_events: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._uploader = uploader
        self._stored_events = stored_events
        self._read_to = 0
        self._waiting: list[SavedCheckpoint] = []
        self._folders: dict[int, str] = {}
        """Folders by step, as announced and not yet deleted."""
        self._shipped = folder.shipped_steps()
        self._thread: threading.Thread | None = None
        self._backoff = Backoff(0.5, 30.0)
        self._resting_until = 0.0

    def begin(self) -> None:
        """Note checkpoints whose lines are new, and start sending if nobody does."""
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

    def are_done(self) -> bool:
        """Whether all announced checkpoints were sent or given up."""
        return not self._is_sending() and not self._waiting

    def _is_sending(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _ready(self) -> bool:
        if not self._waiting or time.monotonic() < self._resting_until:
            return False
        return self._waiting[0].end_offset <= self._stored_events()

    def _send(self) -> None:
        while self._ready():
            saved = self._waiting[0]
            try:
                self._upload_or_give_up(saved)
                self._folder.write_shipped_steps(self._shipped | {saved.line.step})
            except GoneError:
                return  # the events' thread hears it too, and acts
            except (UnreachableError, RefusedError, OSError) as error:
                log.warning("the checkpoint of step %d is tried again: %s", saved.line.step, error)
                self._resting_until = time.monotonic() + self._backoff.next_seconds()
                return
            self._backoff.reset()
            self._shipped.add(saved.line.step)
            self._waiting.pop(0)

    def _upload_or_give_up(self, saved: SavedCheckpoint) -> None:
        try:
            self._upload(saved)
        except StaleFenceError as error:
            log.info("step %d is not wanted any more: %s", saved.line.step, error)
        except DamagedCheckpointError as error:
            log.error("the checkpoint of step %d is not sent: %s", saved.line.step, error)
        except RefusedError as error:
            if not _is_for_good(error):
                raise
            log.error("the checkpoint of step %d is refused: %s", saved.line.step, error)

    def _upload(self, saved: SavedCheckpoint) -> None:
        line = saved.line
        if not is_plain_name(line.folder):
            raise DamagedCheckpointError(f"its folder is named {line.folder!r}")
        root, names = self._folder.path, (OUTPUT_FOLDER, CHECKPOINTS_FOLDER)
        self._uploader().upload(
            CheckpointKind.STATE, line.step, line.digest, saved.end_offset, root, *names, line.folder
        )
        self._delete_older(line.step)

    def _delete_older(self, step: int) -> None:
        """The newest stays: the export reads it."""
        for older in [known for known in list(self._folders) if known < step and known in self._shipped]:
            folder = self._folders.pop(older)
            if is_plain_name(folder):
                delete_checkpoint(self._folder.path, OUTPUT_FOLDER, CHECKPOINTS_FOLDER, folder)
