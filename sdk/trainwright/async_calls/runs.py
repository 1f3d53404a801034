"""Actions on runs: submit, pause, edit, clone, fork, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.async_calls.planning import as_json
from trainwright.async_calls.team import AsyncTeamCalls
from trainwright.contracts.api.actions import (
    BulkAction,
    BulkResult,
    FreedSpace,
    NewClone,
    NewFork,
    RunAction,
    RunEdit,
    RunMove,
)
from trainwright.contracts.api.queue import Priority
from trainwright.contracts.api.runs import Run
from trainwright.contracts.run_spec import RunSpec


class AsyncRunCalls(AsyncTeamCalls):
    """Actions on runs. A call whose response was lost is repeated only if repeating it is harmless."""

    async def submit(self, spec: Mapping[str, Any] | RunSpec, priority: Priority = Priority.NORMAL) -> Run:
        """Queue a run. Of the team's waiting runs, those of a higher priority start first."""
        query = "" if priority is Priority.NORMAL else f"?priority={priority}"
        return await self._client.post_idempotent(f"{self._path}/runs{query}", Run, json=as_json(spec))

    async def cancel(self, run_id: str) -> Run:
        """End a run for good. Repeating is harmless."""
        return await self._client.post_idempotent(f"{self._path}/runs/{run_id}/cancel", Run)

    async def pause(self, run_id: str) -> Run:
        """Ask a run to save its state and free its slots. It is paused when its node has released it. Repeating is harmless."""
        return await self._client.post_idempotent(f"{self._path}/runs/{run_id}/pause", Run)

    async def resume(self, run_id: str) -> Run:
        """Queue a paused run again. If it needs more slots than the team's limit, the call fails and the run stays paused."""
        return await self._client.post(f"{self._path}/runs/{run_id}/resume", Run)

    async def move(self, run_id: str, node: str) -> Run:
        """Ask a run to save its state and leave its nodes. It is placed again without ``node``."""
        asked = RunMove(node=node).model_dump(mode="json")
        return await self._client.post_idempotent(f"{self._path}/runs/{run_id}/move", Run, json=asked)

    async def edit(
        self,
        run_id: str,
        *,
        name: str | None = None,
        tags: Sequence[str] | None = None,
        notes: str | None = None,
        priority: Priority | None = None,
    ) -> Run:
        """Change name, tags, notes or priority of a run. ``tags`` replaces all tags."""
        listed = None if tags is None else tuple(tags)
        change = RunEdit(name=name, tags=listed, notes=notes, priority=priority)
        asked = change.model_dump(mode="json", exclude_none=True)
        return await self._client.patch(f"{self._path}/runs/{run_id}", Run, json=asked)

    async def clone(self, run_id: str, name: str, changes: Mapping[str, Any] | None = None) -> Run:
        """Start a run with the configuration of another one, from step 0.

        Args:
            run_id: the run to clone.
            name: name of the new run.
            changes: changed fields by dotted name, such as ``optimizer.learning_rate``.
        """
        asked = NewClone(name=name, changes=dict(changes or {})).model_dump(mode="json")
        return await self._client.post_idempotent(f"{self._path}/runs/{run_id}/clone", Run, json=asked)

    async def fork(
        self,
        run_id: str,
        name: str,
        changes: Mapping[str, Any] | None = None,
        checkpoint_id: str | None = None,
    ) -> Run:
        """Start a run that continues from a checkpoint of another one, which does not change.

        Args:
            run_id: the parent run.
            name: name of the new run.
            changes: as for `clone`; changes that do not fit the checkpoint are rejected.
            checkpoint_id: default: the newest valid one.
        """
        new = NewFork(name=name, changes=dict(changes or {}), checkpoint=checkpoint_id)
        asked = new.model_dump(mode="json")
        return await self._client.post_idempotent(f"{self._path}/runs/{run_id}/fork", Run, json=asked)

    async def delete_run(self, run_id: str, *, dry_run: bool = False) -> FreedSpace:
        """Delete an ended run and everything that it made, or only report what that would free."""
        return await self._client.delete_for(f"{self._path}/runs/{run_id}", FreedSpace, {"dry_run": dry_run})

    async def act(
        self, action: RunAction, run_ids: Sequence[str], tags: Sequence[str] = ()
    ) -> list[BulkResult]:
        """Apply one action to up to 200 runs; it succeeds or fails for each run independently."""
        asked = BulkAction(action=action, runs=tuple(run_ids), tags=tuple(tags)).model_dump(mode="json")
        return await self._client.post_for_list(f"{self._path}/runs/bulk", BulkResult, json=asked)

    async def change_tags(
        self, run_ids: Sequence[str], *, remove: Sequence[str] = (), add: Sequence[str] = ()
    ) -> list[BulkResult]:
        """Remove tags from runs, then add others. So a run with the maximum number of tags can exchange one, and a tag in
        both lists is present at the end. If adding fails, the tags have still been removed.

        Returns:
            One result per run; if both failed, the first one.
        """
        asked = ((RunAction.UNTAG, remove), (RunAction.TAG, add))
        rounds = [await self.act(action, run_ids, tags) for action, tags in asked if tags]
        return [next((item for item in each if not item.done), each[0]) for each in zip(*rounds, strict=True)]
