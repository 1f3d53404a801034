# Generated from async_calls/queue.py by infra/sync_client.py. Change that file.
"""Calls about the queue of a team."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.calls.team import TeamCalls
from trainwright.contracts.api.queue import QueuedRun, QueueOrder


class QueueCalls(TeamCalls):
    """The order in which the team's waiting runs start."""

    def queue(self) -> list[QueuedRun]:
        """The team's waiting runs, by device and then in the order in which they start."""
        return self._client.get_pages(f"{self._path}/queue", QueuedRun)

    def reorder(self, run_ids: Sequence[str]) -> None:
        """Let waiting runs of one priority start in this order. They exchange places among themselves."""
        order = QueueOrder(runs=tuple(run_ids))
        self._client.put(f"{self._path}/queue/order", QueueOrder, json=order.model_dump(mode="json"))
