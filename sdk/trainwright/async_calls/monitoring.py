"""Monitoring of runs: state, events, metrics and logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from trainwright.async_calls.team import AsyncTeamCalls
from trainwright.contracts.api.logs import LogFile, LogLines, LogMatches, LogText
from trainwright.contracts.api.metrics import MetricPoints, Metrics, RunSeries
from trainwright.contracts.api.runs import (
    ExportFormat,
    NewView,
    Run,
    RunEvent,
    RunGroup,
    RunGrouping,
    RunSamples,
    RunView,
    SavedView,
)
from trainwright.contracts.run_state import FINAL
from trainwright.transport.async_blocking import sleep
from trainwright.transport.errors import ApiError
from trainwright.transport.responses import RETRY_SECONDS, RetryTimer
from trainwright.transport.tls import is_untrusted


class AsyncMonitoringCalls(AsyncTeamCalls):
    """Calls that read the state and the results of runs."""

    async def runs(self, state: str | None = None, **query: Any) -> list[Run]:
        """All runs, newest first; ``query`` filters and sorts: ``q``, ``by``, ``tag``, ``untagged``, ``dataset``, ``model``,
        ``ids``, ``sort``, ``order``."""
        return await self._client.get_pages(
            f"{self._path}/runs", Run, query | ({"state": state} if state else {})
        )

    async def run_groups(self, group: RunGrouping, **query: Any) -> list[RunGroup]:
        """The groups of the runs that ``query`` filters, as in `runs`: by tag, dataset, model or state."""
        return await self._client.get_pages(f"{self._path}/runs/groups", RunGroup, query | {"group": group})

    async def export_runs(self, file: Path, form: ExportFormat | None = None, **query: Any) -> Path:
        """Write all runs that ``query`` filters and sorts, as in `runs`, to a file with a row per run.

        Args:
            file: replaced if it exists.
            form: default: what the file's name ends with, ``.csv`` or ``.parquet``.

        Raises:
            ValueError: the name ends with neither, and ``form`` is not given.
        """
        chosen = form or ExportFormat(file.suffix.removeprefix("."))
        await self._client.save_as(f"{self._path}/runs/export", query | {"format": chosen}, file)
        return file

    async def views(self) -> list[SavedView]:
        """Your saved views of the team's runs, by name."""
        return await self._client.get_pages(f"{self._path}/views", SavedView)

    async def save_view(self, name: str, view: RunView) -> SavedView:
        """Save a view of the team's runs for yourself. Your view of the same name is replaced."""
        new = NewView(name=name, view=view).model_dump(mode="json")
        return await self._client.post(f"{self._path}/views", SavedView, json=new)

    async def delete_view(self, view_id: str) -> None:
        """Delete one of your views."""
        await self._client.delete(f"{self._path}/views/{view_id}")

    async def run(self, run_id: str) -> Run:
        return await self._client.get(f"{self._path}/runs/{run_id}", Run)

    async def wait(
        self, run_id: str, on_change: Callable[[Run], None] | None = None, poll_seconds: float = 1.0
    ) -> Run:
        """Wait until the run has ended. ``on_change`` is called with it at first and whenever it has changed."""
        before: Run | None = None
        while True:
            run = await self.run_patiently(run_id)
            if on_change is not None and run != before:
                on_change(run)
            if run.state in FINAL:
                return run
            before = run
            await sleep(poll_seconds)

    async def events(self, run_id: str, after: int = 0) -> list[RunEvent]:
        return await self._client.get_pages(f"{self._path}/runs/{run_id}/events", RunEvent, {"after": after})

    async def samples(self, run_id: str) -> list[RunSamples]:
        """Text that the model generated from `validation.prompts` at each validation, newest first."""
        return await self._client.get_pages(f"{self._path}/runs/{run_id}/samples", RunSamples)

    async def metrics(
        self, run_id: str, names: Sequence[str] = (), points: int | None = None, **window: int
    ) -> Metrics:
        """Curves; ``window`` is ``after_step`` and ``to_step``."""
        params: dict[str, Any] = {**window, **({"names": list(names)} if names else {})}
        if points is not None:
            params["points"] = points
        return await self._client.get(f"{self._path}/runs/{run_id}/metrics", Metrics, params)

    async def compare_metrics(
        self, run_ids: Sequence[str], names: Sequence[str] = (), points: int | None = None, **window: int
    ) -> list[RunSeries]:
        """Curves of up to a hundred runs; ``window`` is as in `metrics`. Runs of other teams are left out."""
        params: dict[str, Any] = {"runs": list(run_ids), **window}
        if names:
            params["names"] = list(names)
        if points is not None:
            params["points"] = points
        return await self._client.get_list(f"{self._path}/metrics", RunSeries, params)

    async def stream_metrics(self, run_id: str, cursor: str | None = None) -> AsyncIterator[MetricPoints]:
        """Stream points, from the first one or from ``cursor``, until the run has ended.

        After a recovery, a step can be repeated; the later value is valid.
        """
        timer, closings = RetryTimer(), 0
        while True:
            run = await self.run_patiently(run_id)
            pause_seconds = RETRY_SECONDS[min(closings, len(RETRY_SECONDS) - 1)]
            try:
                async for message in self._client.stream(
                    f"{self._path}/runs/{run_id}/metrics/stream", cursor
                ):
                    timer.reset()
                    closings, pause_seconds = 0, RETRY_SECONDS[0]
                    cursor = message.id or cursor
                    if message.event == "points":
                        yield MetricPoints.model_validate_json(message.data)
            except httpx.TransportError as error:  # proxies end streams in which nothing happens
                if is_untrusted(error):
                    raise
            except ApiError as error:
                pause_seconds = timer.pause_seconds(error)
            else:
                if run.state in FINAL:
                    return
            closings += 1
            await sleep(pause_seconds)

    async def run_patiently(self, run_id: str) -> Run:
        """The run, also if the server is away for up to a quarter of an hour, as during its upgrade."""
        return await self._client.get_patiently(f"{self._path}/runs/{run_id}", Run)

    async def logs(self, run_id: str) -> list[LogFile]:
        return await self._client.get_list(f"{self._path}/runs/{run_id}/logs", LogFile)

    async def log_text(
        self, run_id: str, attempt: int, file: str, offset: int = 0, *, patiently: bool = False
    ) -> LogText:
        """Text of a log from ``offset`` on; ``patiently`` waits for a server that is away, as `run_patiently`."""
        path = f"{self._path}/runs/{run_id}/logs/{attempt}/{quote(file, safe='')}"
        get = self._client.get_patiently if patiently else self._client.get
        return await get(path, LogText, {"offset": offset})

    async def log_lines(
        self,
        run_id: str,
        attempt: int,
        file: str,
        first: int = 1,
        limit: int = 1_000,
        *,
        patiently: bool = False,
    ) -> LogLines:
        """Lines of a log from number ``first`` on; ``patiently`` as in `log_text`."""
        path = f"{self._path}/runs/{run_id}/logs/{attempt}/{quote(file, safe='')}/lines"
        get = self._client.get_patiently if patiently else self._client.get
        return await get(path, LogLines, {"first": first, "limit": limit})

    async def search_log(
        self, run_id: str, attempt: int, file: str, words: str, after_line: int = 0
    ) -> LogMatches:
        """Lines that contain ``words``. Continue from `LogMatches.searched_to` until its `end`."""
        path = f"{self._path}/runs/{run_id}/logs/{attempt}/{quote(file, safe='')}/search"
        return await self._client.get(path, LogMatches, {"q": words, "after_line": after_line})
