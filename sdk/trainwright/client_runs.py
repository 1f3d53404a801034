"""What the client does with a run that exists, as one half of `client.TeamClient`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.connection import Connection
from trainwright.contracts.api.checkpoints import Checkpoint
from trainwright.contracts.api.runs import Run
from trainwright.contracts.api.verbs import (
    BulkAction,
    BulkResult,
    BulkVerb,
    Freed,
    NewClone,
    NewFork,
    Retention,
    RetentionResult,
    RunEdit,
)


class RunCalls:
    """Verbs of runs and of their checkpoints. A call whose answer was lost is repeated only where that is harmless."""

    _client: Connection
    _path: str

    def cancel(self, run_id: str) -> Run:
        return self._do(run_id, "cancel")

    def pause(self, run_id: str) -> Run:
        """Ask a run to save its state and free its slots. It is paused when its node has let go of it."""
        return self._do(run_id, "pause")

    def resume(self, run_id: str) -> Run:
        """Queue a paused run again; over the team's quota it is refused and stays paused."""
        return self._do(run_id, "resume")

    def edit(
        self,
        run_id: str,
        *,
        name: str | None = None,
        tags: Sequence[str] | None = None,
        notes: str | None = None,
    ) -> Run:
        """Change what people call a run; what is left out stays, and ``tags`` replaces all."""
        change = RunEdit(name=name, tags=None if tags is None else tuple(tags), notes=notes)
        asked = change.model_dump(mode="json", exclude_none=True)
        return self._client.patch(f"{self._path}/runs/{run_id}", Run, json=asked)

    def clone(self, run_id: str, name: str, changes: Mapping[str, Any] | None = None) -> Run:
        """Start a run with the configuration of another, from step 0.

        Args:
            run_id: whose configuration.
            name: of the new run.
            changes: fields that differ, by dotted name, such as ``optimizer.learning_rate``.
        """
        asked = NewClone(name=name, changes=dict(changes or {})).model_dump(mode="json")
        return self._client.post_repeatable(f"{self._path}/runs/{run_id}/clone", Run, json=asked)

    def fork(
        self,
        run_id: str,
        name: str,
        changes: Mapping[str, Any] | None = None,
        checkpoint_id: str | None = None,
    ) -> Run:
        """Start a run that goes on from a checkpoint of another, which stays as it is.

        Args:
            run_id: the parent.
            name: of the new run.
            changes: as for `clone`; what the checkpoint does not fit is refused.
            checkpoint_id: the newest valid one when left out.
        """
        new = NewFork(name=name, changes=dict(changes or {}), checkpoint=checkpoint_id)
        asked = new.model_dump(mode="json")
        return self._client.post_repeatable(f"{self._path}/runs/{run_id}/fork", Run, json=asked)

    def delete_run(self, run_id: str, *, dry_run: bool = False) -> Freed:
        """Delete an ended run with all that it made, or only say what that would free."""
        return self._client.delete_for(f"{self._path}/runs/{run_id}", Freed, {"dry_run": dry_run})

    def act(self, verb: BulkVerb, run_ids: Sequence[str], tags: Sequence[str] = ()) -> list[BulkResult]:
        """One verb for up to 200 runs; each succeeds or is refused by itself."""
        action = BulkAction(verb=verb, runs=tuple(run_ids), tags=tuple(tags)).model_dump(mode="json")
        return self._client.post_for_list(f"{self._path}/runs/bulk", BulkResult, json=action)

    def change_tags(
        self, run_ids: Sequence[str], *, remove: Sequence[str] = (), add: Sequence[str] = ()
    ) -> list[BulkResult]:
        """Take tags from runs, then give them others: so a run that has all the tags it may have can exchange one, and
        a tag that is in both is there in the end. Where the second is refused, the first has been done.

        Returns:
            One result a run; of two refusals the first.
        """
        asked = ((BulkVerb.UNTAG, remove), (BulkVerb.TAG, add))
        rounds = [self.act(verb, run_ids, tags) for verb, tags in asked if tags]
        return [next((one for one in each if not one.done), each[0]) for each in zip(*rounds, strict=True)]

    def pin(self, run_id: str, checkpoint_id: str, *, pinned: bool = True) -> Checkpoint:
        """Keep a checkpoint until it is unpinned."""
        return self._client.patch(
            self._checkpoint(run_id, checkpoint_id), Checkpoint, json={"pinned": pinned}
        )

    def delete_checkpoint(self, run_id: str, checkpoint_id: str, *, dry_run: bool = False) -> Freed:
        """Delete one checkpoint or export, or only say what that would free."""
        return self._client.delete_for(self._checkpoint(run_id, checkpoint_id), Freed, {"dry_run": dry_run})

    def retain(self, rule: Retention) -> RetentionResult:
        """Delete the team's checkpoints that ``rule`` does not keep; as it is, it only says which."""
        asked = rule.model_dump(mode="json")
        return self._client.post(f"{self._path}/checkpoints/retention", RetentionResult, json=asked)

    def _checkpoint(self, run_id: str, checkpoint_id: str) -> str:
        return f"{self._path}/runs/{run_id}/checkpoints/{checkpoint_id}"

    def _do(self, run_id: str, verb: str) -> Run:
        return self._client.post(f"{self._path}/runs/{run_id}/{verb}", Run)
