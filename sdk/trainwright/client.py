"""The typed client: what the CLI, the demo and people's own scripts use to talk to a Trainwright server.

::

    with Client("https://train.example.org", key=os.environ["TRAINWRIGHT_KEY"]) as client:
        team = client.team("vision-lab")
        dataset = team.upload("letters", [Path("letters.jsonl")])
        run = team.submit(RunSpec(name="pilot", data=DataSpec(dataset=dataset.id)))
        for points in team.stream_metrics(run.id):
            print(points.steps[-1], points.series["loss"][-1])
        team.download(run.id, Path("pilot"))

It holds no state but the connection. Reads are repeated when the connection breaks, submissions too, by an
idempotency key; nothing else is. `wait` and `stream_metrics` follow a run for days, so they outlive a server that is
away for minutes. Errors of the server are `connection.ApiError` with its code, its sentence and the fields.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import httpx

from trainwright.connection import RETRY_SECONDS, Answer, ApiError, Connection, DigestMismatchError
from trainwright.contracts.api import (
    Checkpoint,
    CheckpointFile,
    CreatedKey,
    Dataset,
    Health,
    JoinToken,
    LogFile,
    LogText,
    Me,
    MetricPoints,
    Metrics,
    Node,
    OneTimeLink,
    Page,
    RejectedDocument,
    Run,
    RunEvent,
    SpecInfo,
    Team,
    Verdicts,
)
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import FINAL

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""

AWAY_SECONDS = 900.0
"""How long `wait` and `stream_metrics` go on trying to reach a server that does not answer."""


class Client(Connection):
    """What belongs to no team: accounts, nodes, the spec."""

    def team(self, slug: str) -> TeamClient:
        """Calls that belong to one team."""
        return TeamClient(self, slug)

    def health(self) -> Health:
        return self.get("/health", Health)

    def me(self) -> Me:
        return self.get("/me", Me)

    def spec(self) -> SpecInfo:
        """JSON Schema of RunSpec and the presets."""
        return self.get("/spec", SpecInfo)

    def nodes(self) -> list[Node]:
        return self.get_list("/nodes", Node)

    def use_link(self, link: OneTimeLink) -> Me:
        """Use a one-time link; this client is signed in afterwards."""
        return self.post("/auth/link", Me, json=link.model_dump(exclude_none=True))

    def create_key(self, name: str) -> CreatedKey:
        """A new API key; its secret is shown this once."""
        return self.post("/me/keys", CreatedKey, json={"name": name})

    def create_join_token(self, node_name: str) -> JoinToken:
        """A one-time token with which the node of that name may join."""
        return self.post("/join-tokens", JoinToken, json={"name": node_name})


class TeamClient:
    """Calls that belong to one team. Get it from `Client.team`."""

    def __init__(self, client: Client, slug: str) -> None:
        self._client = client
        self._path = f"/teams/{quote(slug, safe='')}"

    def show(self) -> Team:
        """The team and its quota."""
        return self._client.get(self._path, Team)

    # --- datasets

    def datasets(self) -> list[Dataset]:
        return self._pages(f"{self._path}/datasets", Dataset)

    def dataset(self, dataset_id: str) -> Dataset:
        return self._client.get(f"{self._path}/datasets/{dataset_id}", Dataset)

    def upload(self, name: str, files: Sequence[Path], on_progress: Progress | None = None) -> Dataset:
        """Upload `.txt` and `.jsonl` files as version 1 of a new dataset."""
        return self._upload(f"{self._path}/datasets", {"name": name}, files, on_progress)

    def upload_version(
        self, dataset_id: str, files: Sequence[Path], on_progress: Progress | None = None
    ) -> Dataset:
        """Upload files as the next version of a dataset."""
        return self._upload(f"{self._path}/datasets/{dataset_id}/versions", {}, files, on_progress)

    def rejected_documents(self, dataset_id: str, version: int) -> list[RejectedDocument]:
        path = f"{self._path}/datasets/{dataset_id}/versions/{version}/rejected"
        return self._client.get_list(path, RejectedDocument)

    def delete_dataset(self, dataset_id: str) -> None:
        self._client.delete(f"{self._path}/datasets/{dataset_id}")

    # --- runs

    def validate(self, spec: Mapping[str, Any] | RunSpec) -> Verdicts:
        """What the server thinks of a spec, without submitting it."""
        return self._client.post(f"{self._path}/runs/validate", Verdicts, json=_as_json(spec))

    def submit(self, spec: Mapping[str, Any] | RunSpec) -> Run:
        return self._client.post_repeatable(f"{self._path}/runs", Run, json=_as_json(spec))

    def runs(self, state: str | None = None) -> list[Run]:
        """All runs, newest first."""
        return self._pages(f"{self._path}/runs", Run, {"state": state} if state else {})

    def run(self, run_id: str) -> Run:
        return self._client.get(f"{self._path}/runs/{run_id}", Run)

    def cancel(self, run_id: str) -> Run:
        return self._client.post(f"{self._path}/runs/{run_id}/cancel", Run)

    def delete_run(self, run_id: str) -> None:
        self._client.delete(f"{self._path}/runs/{run_id}")

    def wait(
        self, run_id: str, on_change: Callable[[Run], None] | None = None, poll_seconds: float = 1.0
    ) -> Run:
        """Wait until the run has ended; ``on_change`` sees it after every poll."""
        while True:
            run = self._run_patiently(run_id)
            if on_change is not None:
                on_change(run)
            if run.state in FINAL:
                return run
            time.sleep(poll_seconds)

    def events(self, run_id: str, after: int = 0) -> list[RunEvent]:
        return self._client.get_list(f"{self._path}/runs/{run_id}/events", RunEvent, {"after": after})

    def metrics(self, run_id: str, names: Sequence[str] = (), points: int | None = None) -> Metrics:
        params: dict[str, Any] = {"names": list(names)} if names else {}
        if points is not None:
            params["points"] = points
        return self._client.get(f"{self._path}/runs/{run_id}/metrics", Metrics, params)

    def stream_metrics(self, run_id: str, cursor: str | None = None) -> Iterator[MetricPoints]:
        """Points as they are made, from the first one or from ``cursor``, until the run has ended.

        After a recovery a step can come again: the later value is the valid one.
        """
        while True:
            ended = self._run_patiently(run_id).state in FINAL
            try:
                for message in self._client.stream(f"{self._path}/runs/{run_id}/metrics/stream", cursor):
                    cursor = message.id or cursor
                    if message.event == "points":
                        yield MetricPoints.model_validate_json(message.data)
            except httpx.TransportError:
                time.sleep(RETRY_SECONDS[0])
                continue
            if ended:
                return

    def _run_patiently(self, run_id: str) -> Run:
        deadline = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                return self.run(run_id)
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise

    def logs(self, run_id: str) -> list[LogFile]:
        return self._client.get_list(f"{self._path}/runs/{run_id}/logs", LogFile)

    def log_text(self, run_id: str, attempt: int, file: str, offset: int = 0) -> LogText:
        path = f"{self._path}/runs/{run_id}/logs/{attempt}/{quote(file, safe='')}"
        return self._client.get(path, LogText, {"offset": offset})

    # --- checkpoints

    def checkpoints(self, run_id: str) -> list[Checkpoint]:
        return self._client.get_list(f"{self._path}/runs/{run_id}/checkpoints", Checkpoint)

    def download(
        self, run_id: str, folder: Path, checkpoint_id: str | None = None, on_progress: Progress | None = None
    ) -> Path:
        """Download a checkpoint file by file, each checked against its digest.

        Args:
            run_id: whose checkpoint.
            folder: made if missing. What an interrupted download left there is used; other files of the same name
                are replaced.
            checkpoint_id: the newest export when left out.
            on_progress: called with bytes done and bytes in all.

        Returns:
            The folder.

        Raises:
            LookupError: the run has no export yet.
            DigestMismatchError: a file arrived damaged; nothing under its name was changed.
        """
        chosen = checkpoint_id or self._newest_export(run_id).id
        files = self._files(run_id, chosen)
        folder.mkdir(parents=True, exist_ok=True)
        meter = _Meter(sum(file.bytes for file in files), on_progress)
        for file in files:
            target = folder / file.name
            if target.parent != folder:
                raise ValueError(f"refused file name {file.name!r}: it leaves the folder")
            if _is_there(target, file):
                meter.add(file.bytes)
            else:
                self._save(run_id, chosen, file, target, meter)
        return folder

    def _files(self, run_id: str, checkpoint_id: str) -> list[CheckpointFile]:
        return self._client.get_list(
            f"{self._path}/runs/{run_id}/checkpoints/{checkpoint_id}/files", CheckpointFile
        )

    def _save(
        self, run_id: str, checkpoint_id: str, file: CheckpointFile, target: Path, meter: _Meter
    ) -> None:
        """Download one file; a try that fails is repeated with a fresh link, since links expire."""
        url = file.url
        for wait_seconds in RETRY_SECONDS:
            before = meter.done
            try:
                return self._client.save(url, target, file.digest, meter.add)
            except (httpx.TransportError, DigestMismatchError, ApiError):
                meter.add(before - meter.done)
            time.sleep(wait_seconds)
            url = {one.name: one.url for one in self._files(run_id, checkpoint_id)}[file.name]
        self._client.save(url, target, file.digest, meter.add)

    def _newest_export(self, run_id: str) -> Checkpoint:
        exports = [c for c in self.checkpoints(run_id) if c.kind is CheckpointKind.EXPORT and c.valid]
        if not exports:
            raise LookupError(f"run {run_id} has no export yet: it is made when the run succeeds")
        return max(exports, key=lambda checkpoint: checkpoint.step)

    def _upload(
        self, path: str, data: Mapping[str, str], files: Sequence[Path], on_progress: Progress | None
    ) -> Dataset:
        meter = _Meter(sum(file.stat().st_size for file in files), on_progress)
        with ExitStack() as stack:
            parts = [
                ("files", (file.name, _Metered(stack.enter_context(file.open("rb")), meter.add)))
                for file in files
            ]
            return self._client.post_files(path, Dataset, data, parts)

    def _pages(self, path: str, item: type[Answer], params: Mapping[str, Any] | None = None) -> list[Answer]:
        found: list[Answer] = []
        cursor: str | None = None
        while True:
            query = dict(params or {}) | ({"cursor": cursor} if cursor else {})
            page = self._client.get(path, Page[item], query)  # type: ignore[valid-type]
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found


class _Meter:
    def __init__(self, total: int, on_progress: Progress | None) -> None:
        self._total = total
        self._on_progress = on_progress
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count
        if self._on_progress is not None:
            self._on_progress(self.done, self._total)


class _Metered:
    """A binary file that tells how much of it was read."""

    def __init__(self, file: IO[bytes], on_bytes: Callable[[int], None]) -> None:
        self._file = file
        self._on_bytes = on_bytes

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._on_bytes(len(block))
        return block

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def fileno(self) -> int:
        return self._file.fileno()


def _is_there(target: Path, file: CheckpointFile) -> bool:
    if not target.is_file() or target.stat().st_size != file.bytes:
        return False
    with target.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.digest


def _as_json(spec: Mapping[str, Any] | RunSpec) -> Any:
    return spec.model_dump(mode="json") if isinstance(spec, RunSpec) else dict(spec)
