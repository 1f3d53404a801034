"""Checkpoints: list, download, pin and delete them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx

from trainwright.async_calls.team import AsyncTeamCalls
from trainwright.contracts.api.actions import (
    FreedSpace,
    Retention,
    RetentionResult,
)
from trainwright.contracts.api.checkpoints import Checkpoint, CheckpointFile, CheckpointOrder
from trainwright.contracts.api.runs import Run
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.listing import listed
from trainwright.contracts.run_state import FINAL
from trainwright.transport.async_blocking import call_blocking, sleep
from trainwright.transport.errors import ApiError, DigestMismatchError
from trainwright.transport.partial_file import PartialFile
from trainwright.transport.progress import OnProgress, ProgressMeter
from trainwright.transport.responses import RETRY_SECONDS, RetryTimer, is_temporary


class AsyncCheckpointCalls(AsyncTeamCalls):
    """Calls about the checkpoints of runs."""

    async def checkpoints(self, run_id: str) -> list[Checkpoint]:
        return await self._client.get_pages(f"{self._path}/runs/{run_id}/checkpoints", Checkpoint)

    async def all_checkpoints(
        self,
        kind: CheckpointKind | None = None,
        pinned: bool | None = None,
        order: CheckpointOrder = CheckpointOrder.NEWEST,
    ) -> list[Checkpoint]:
        """Checkpoints and exports of all runs of the team, newest first or run by run."""
        asked = {"kind": kind, "pinned": pinned, "order": order}
        given = {name: value for name, value in asked.items() if value is not None}
        return await self._client.get_pages(f"{self._path}/checkpoints", Checkpoint, given)

    async def download(
        self,
        run_id: str,
        folder: Path,
        checkpoint_id: str | None = None,
        on_progress: OnProgress | None = None,
        *,
        overwrite: bool = False,
    ) -> Path:
        """Download a checkpoint, and verify the digest of each file.

        Args:
            run_id: run of the checkpoint.
            folder: created if it does not exist. What an interrupted download has left there is reused.
            checkpoint_id: default: the newest export.
            on_progress: called with the bytes done and the total bytes.
            overwrite: replace files of another model. Its files of other names stay.

        Returns:
            The folder.

        Raises:
            NotADirectoryError: ``folder`` is a file.
            FileExistsError: the folder has files of another model, and ``overwrite`` is false. Nothing was written.
            LookupError: the run has no export yet.
            DigestMismatchError: a file arrived damaged. An existing file of its name is not changed.
            BlockingIOError: another download to the folder is in progress.
        """
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(
                f"{folder} is a file, not a folder. Name a folder for the files of the model."
            )
        chosen = checkpoint_id or await self._newest_export(run_id)
        files = await self._files(run_id, chosen)
        for file in files:
            if (folder / file.name).parent != folder:
                raise ValueError(f"refused file name {file.name!r}: it leaves the folder")
        complete = {file.name for file in files if await call_blocking(_is_there, folder / file.name, file)}
        if not overwrite:
            _refuse_other_model(folder, files, complete)
        folder.mkdir(parents=True, exist_ok=True)
        meter = ProgressMeter(sum(file.bytes for file in files), on_progress)
        for file in files:
            if file.name in complete:
                meter.add(file.bytes)
            else:
                await self._save(run_id, chosen, file, folder / file.name, meter)
        return folder

    async def pin(self, run_id: str, checkpoint_id: str, *, pinned: bool = True) -> Checkpoint:
        """Pin a checkpoint, so that it is not deleted, or unpin it."""
        return await self._client.patch(
            self._checkpoint(run_id, checkpoint_id), Checkpoint, json={"pinned": pinned}
        )

    async def delete_checkpoint(
        self, run_id: str, checkpoint_id: str, *, dry_run: bool = False
    ) -> FreedSpace:
        """Delete a checkpoint or export, or only report what that would free."""
        return await self._client.delete_for(
            self._checkpoint(run_id, checkpoint_id), FreedSpace, {"dry_run": dry_run}
        )

    async def retain(self, rule: Retention) -> RetentionResult:
        """Delete the team's checkpoints that ``rule`` does not keep. With its default ``dry_run``, only report them."""
        asked = rule.model_dump(mode="json")
        return await self._client.post(f"{self._path}/checkpoints/retention", RetentionResult, json=asked)

    async def _files(self, run_id: str, checkpoint_id: str) -> list[CheckpointFile]:
        return await self._client.get_list(
            f"{self._path}/runs/{run_id}/checkpoints/{checkpoint_id}/files", CheckpointFile
        )

    async def _save(
        self, run_id: str, checkpoint_id: str, file: CheckpointFile, target: Path, meter: ProgressMeter
    ) -> None:
        """Download one file, or the rest of it. Retries continue where it broke off, with a new link, since links expire."""
        url: str | None = file.url
        timer, refusals, damages = RetryTimer(), iter(RETRY_SECONDS), iter(RETRY_SECONDS)
        with await call_blocking(PartialFile, target, file.bytes, file.digest) as partial:
            furthest = partial.received
            meter.add(furthest)
            while True:
                try:
                    if not partial.is_complete:
                        url = url or await self._link(run_id, checkpoint_id, file.name)
                        await self._client.save(url, partial, meter.add)
                    return await call_blocking(partial.finish)
                except DigestMismatchError:
                    if (wait_seconds := next(damages, None)) is None:
                        raise
                    meter.add(-partial.received)
                    await call_blocking(partial.restart)
                except (httpx.TransportError, ApiError) as error:
                    if partial.received > furthest:  # a long download may break off any number of times
                        furthest, refusals = partial.received, iter(RETRY_SECONDS)
                        timer.reset()
                    is_link_refused = isinstance(error, ApiError) and url is not None
                    if not is_link_refused or is_temporary(error):
                        wait_seconds = timer.pause_seconds(error)
                    elif (wait_seconds := next(refusals, None)) is None:
                        raise
                await sleep(wait_seconds)
                url = None

    async def _link(self, run_id: str, checkpoint_id: str, name: str) -> str:
        """A new link to a file of a checkpoint."""
        for file in await self._files(run_id, checkpoint_id):
            if file.name == name:
                return file.url
        raise LookupError(
            f"{name} is no longer a file of checkpoint {checkpoint_id}. Start the download again."
        )

    async def _newest_export(self, run_id: str) -> str:
        exports = [c for c in await self.checkpoints(run_id) if c.kind is CheckpointKind.EXPORT and c.valid]
        if not exports:
            run = await self._client.get(f"{self._path}/runs/{run_id}", Run)
            if run.state in FINAL:
                raise LookupError(
                    f"run {run_id} ended ({run.state.value}) without an export: only runs that succeed have one. Choose one of its "
                    "checkpoints instead"
                )
            raise LookupError(f"run {run_id} has no export yet: it is created when the run succeeds")
        return max(exports, key=lambda checkpoint: checkpoint.step).id

    def _checkpoint(self, run_id: str, checkpoint_id: str) -> str:
        return f"{self._path}/runs/{run_id}/checkpoints/{checkpoint_id}"


def _refuse_other_model(folder: Path, files: list[CheckpointFile], complete: set[str]) -> None:
    """Refuse a folder with a file of the same name and other content, or with weights that this model has not."""
    names = {file.name for file in files}
    differ = {name for name in names - complete if (folder / name).exists()}
    weights = {path.name for path in folder.glob("[!.]*.safetensors*")} - names
    others = sorted(differ | weights)
    if others:
        raise FileExistsError(
            f"{folder} has files of another model: {listed(others, most=3)}. Nothing was written. Choose another folder, "
            "or replace them with --overwrite."
        )


def _is_there(target: Path, file: CheckpointFile) -> bool:
    if not target.is_file() or target.stat().st_size != file.bytes:
        return False
    with target.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.digest
