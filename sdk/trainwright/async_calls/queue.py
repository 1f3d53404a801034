"""Calls about the queue of a team."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.async_calls.team import AsyncTeamCalls
from trainwright.contracts.api.queue import QueuedRun, QueueOrder


class AsyncQueueCalls(AsyncTeamCalls):
    """The order in which the team's waiting runs start."""

    async def queue(self) -> list[QueuedRun]:
        """The team's waiting runs, by device and then in the order in which they start."""
        return await self._client.get_pages(f"{self._path}/queue", QueuedRun)

    async def reorder(self, run_ids: Sequence[str]) -> None:
        """Let waiting runs of one priority start in this order. They exchange places among themselves."""
        order = QueueOrder(runs=tuple(run_ids))
        await self._client.put(f"{self._path}/queue/order", QueueOrder, json=order.model_dump(mode="json"))
