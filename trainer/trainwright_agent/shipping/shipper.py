"""Sends one attempt to the API: its events, logs and checkpoints as they grow, and finally its end.

One thread per attempt sends events and logs. Checkpoints, which can take minutes, have a second one, so that charts
stay live. The protocol fixes the order at the end: remaining events and logs, complete checkpoints, the export, then
the report. Only the API knows what was sent, so a new agent asks for the offsets and continues there.

A shipper may be killed at any instruction and started again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainwright.contracts.agent_protocol import Batch, Claim, EndReport
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.hardware import RunHardwareUse
from trainwright.contracts.job_spec import (
    EVENTS_NAME,
    EXPORT_FOLDER,
    OUTPUT_FOLDER,
    Outcome,
    Peak,
)
from trainwright_agent.client import (
    Backoff,
    Client,
    RefusedError,
    RunDeletedError,
    StaleFenceError,
    UnreachableError,
    WrongOffsetError,
    is_permanent,
)
from trainwright_agent.shipping.checkpoint_queue import CheckpointQueue
from trainwright_agent.shipping.uploader import DamagedCheckpointError, Part, Upload, Uploader
from trainwright_agent.tail import (
    CHUNK_BYTES,
    log_names,
    read_batch,
    read_log,
)
from trainwright_agent.workspace import AttemptFolder

log = logging.getLogger(__name__)

_MAX_PAUSE_SECONDS = 1.0


class Shipper:
    """Ships one attempt in its own thread until its end is accepted, or refused permanently.

    Args:
        folder: the attempt's folder.
        claim: its granted claim.
        connect: returns a client; the API may move.
        object_store: the store's folder, if it is on this disk.
        on_faster: called with the FLOP/s per slot that the run computed, if they exceed the slot's measured peak.
        take_hardware: returns the mean use of the hardware since its last call, if any was measured.
    """

    def __init__(
        self,
        folder: AttemptFolder,
        claim: Claim,
        connect: Callable[[], Client],
        object_store: Path | None,
        on_faster: Callable[[Peak], None],
        take_hardware: Callable[[], RunHardwareUse | None],
    ) -> None:
        self._folder = folder
        self._claim = claim
        self._run_id = claim.job.run_id
        self._connect = connect
        self._client = connect()
        self._object_store = object_store
        self.is_done = False
        """Nothing is left to do: the end was accepted, or is no longer needed."""
        self._on_faster = on_faster
        self._highest_mfu = 1.0
        self._take_hardware = take_hardware
        self._hardware: RunHardwareUse | None = None
        """Measured and not sent yet."""
        self._offsets: dict[str, int] = {}
        self._single_lines_until = 0
        """Events up to this offset are sent line by line, because a chunk was refused."""
        self._refused_logs: set[str] = set()
        self._exported = False
        self._pause_seconds = min(_MAX_PAUSE_SECONDS, claim.timers.heartbeat_seconds / 5)
        self._thread = threading.Thread(target=self._run, name=f"ship {folder.claim_id[:8]}", daemon=True)
        self._checkpoints = CheckpointQueue(folder, claim.job, self._uploader, self._stored_events)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        backoff = Backoff(self._pause_seconds, 5.0)
        while True:
            try:
                if self._ship_new():
                    self.is_done = True
                    return
                backoff.reset()
                time.sleep(self._pause_seconds)
            except (UnreachableError, OSError) as error:
                log.warning("%s: shipping failed: %s", self._run_id, error)
                self._client = self._connect()
                time.sleep(backoff.next_seconds())
            except RunDeletedError:
                log.info("%s was deleted", self._run_id)
                self.is_done = True
                return
            except RefusedError as error:
                log.error("%s: refused: %s", self._run_id, error)
                time.sleep(backoff.next_seconds())

    def _ship_new(self) -> bool:
        """Send what is new; returns True if nothing is left to do."""
        # Read first: everything written before exit.json is sent below, and nothing after it matters.
        exit = self._folder.exit()
        try:
            if not self._offsets:
                stored = self._client.offsets(self._run_id, self._claim.attempt)
                self._offsets = {EVENTS_NAME: 0} | stored.files
            if self._claim.job.is_first_node:  # the other nodes' events are the same
                self._ship_events()
            self._ship_logs()
        except StaleFenceError as error:
            log.info("%s: a later attempt has started: %s", self._run_id, error)
            return exit is not None
        self._checkpoints.poll()
        if exit is None or not self._checkpoints.is_drained():
            return False
        return self._report(self._upload_export(exit))

    def _ship_events(self) -> None:
        while True:
            offset = self._offsets[EVENTS_NAME]
            limit_bytes = 1 if offset < self._single_lines_until else CHUNK_BYTES
            try:
                batch = read_batch(
                    self._folder.path, self._claim.attempt, self._claim.fence, offset, limit_bytes
                )
            except OSError as error:
                log.error("%s: the events are not safe to read: %s", self._run_id, error)
                return
            if batch is None:
                return
            self._compare_with_peak(batch)
            if batch.metrics:
                self._hardware = self._hardware or self._take_hardware()
                batch = batch.model_copy(update={"hardware": self._hardware})
            try:
                stored = self._client.send_batch(self._run_id, batch).offset
            except WrongOffsetError as error:
                stored = error.offset
            except RefusedError as error:
                if not is_permanent(error):
                    raise
                if limit_bytes > 1:
                    self._single_lines_until = batch.next_offset
                    continue
                log.error("%s: dropped the line of events at %d: %s", self._run_id, offset, error)
                empty = batch.model_copy(update={"events": [], "metrics": [], "hardware": None})
                stored = self._client.send_batch(self._run_id, empty).offset
            self._offsets[EVENTS_NAME] = stored
            if batch.metrics:
                self._hardware = None

    def _compare_with_peak(self, batch: Batch) -> None:
        peak = self._claim.job.peak
        fractions = [fraction for block in batch.metrics for fraction in block.series.get("mfu", ())]
        highest = max(fractions, default=0.0)
        is_own = self._claim.job.nodes == 1  # otherwise it is the mean of several nodes' peaks
        if peak is not None and is_own and peak.measured and self._highest_mfu < highest < float("inf"):
            self._highest_mfu = highest
            self._on_faster(peak.model_copy(update={"flops_per_second": highest * peak.flops_per_second}))

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
                    if not is_permanent(error):
                        raise
                    log.warning("%s: %s is no longer shipped: %s", self._run_id, name, error)
                    self._refused_logs.add(name)

    def _read_log(self, name: str) -> bytes:
        try:
            return read_log(self._folder.path, name, self._offsets.get(name, 0))
        except OSError as error:
            log.warning("%s: %s is not safe to read: %s", self._run_id, name, error)
            return b""

    def _upload_export(self, exit: Outcome) -> Outcome:
        """Upload the export of a successful attempt. If it must not be sent, the outcome becomes a failure."""
        if exit.code is not EndCode.FINISHED or self._exported or not self._claim.job.is_first_node:
            return exit
        try:
            self._uploader().upload(
                Upload(CheckpointKind.EXPORT), Part.ALL, self._folder.path, OUTPUT_FOLDER, EXPORT_FOLDER
            )
        except StaleFenceError as error:
            log.info("%s: the export is no longer needed: %s", self._run_id, error)
        except (DamagedCheckpointError, RefusedError) as error:
            if isinstance(error, RefusedError) and not is_permanent(error):
                raise
            message = f"The export was not uploaded: {error}."
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
            log.info("%s: the end is no longer needed: %s", self._run_id, error)
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
        """Sent size of each file: all of it, except an incomplete last line."""
        return {name: offset for name, offset in self._offsets.items() if offset > 0}

    def _uploader(self) -> Uploader:
        return Uploader(self._connect(), self._run_id, self._claim.fence, self._object_store)

    def _stored_events(self) -> int:
        return self._offsets.get(EVENTS_NAME, 0)
