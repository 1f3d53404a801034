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
idempotency key, and uploads go on where they were; nothing else is. `wait` and `stream_metrics` follow a run for days, so they outlive a server that is
away for minutes. Errors of the server are `connection.ApiError` with its code, its sentence and the fields.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from trainwright.client_plans import PlanCalls, as_json
from trainwright.client_runs import RunCalls
from trainwright.connection import RETRY_SECONDS, Answer, ApiError, Connection, DigestMismatchError
from trainwright.contracts.api.checkpoints import Checkpoint, CheckpointFile
from trainwright.contracts.api.datasets import (
    CountRequest,
    Dataset,
    DatasetVersion,
    DocumentSample,
    NewPreparation,
    NewTokenizer,
    Preparation,
    PreparationState,
    RecipeCounts,
    Tokenizer,
    VersionState,
)
from trainwright.contracts.api.envelopes import Health, Page, SpecInfo
from trainwright.contracts.api.logs import LogFile, LogLines, LogMatches, LogText
from trainwright.contracts.api.metrics import MetricPoints, Metrics, RunSeries
from trainwright.contracts.api.nodes import JoinToken, Node
from trainwright.contracts.api.people import (
    CreatedKey,
    Invitation,
    Me,
    NewInvitation,
    OneTimeLink,
    OpenInvitation,
    Role,
    StorageUse,
    Team,
)
from trainwright.contracts.api.runs import Run, RunEvent
from trainwright.contracts.api.uploads import Preview, RejectedDocument, Upload
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.data_spec import TokenizerSpec
from trainwright.contracts.recipe import Recipe
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import FINAL
from trainwright.files import LocalFile, find_files
from trainwright.tus import Sender

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

    def set_draining(self, node_id: str, draining: bool) -> Node:
        """Place nothing new on a node, or let it take runs again. For site admins."""
        return self.patch(f"/nodes/{node_id}", Node, json={"draining": draining})

    def use_link(self, link: OneTimeLink) -> Me:
        """Use a one-time link; this client is signed in afterwards."""
        return self.post("/auth/link", Me, json=link.model_dump(exclude_none=True))

    def create_key(self, name: str) -> CreatedKey:
        """A new API key; its secret is shown this once."""
        return self.post("/me/keys", CreatedKey, json={"name": name})

    def create_join_token(self, node_name: str) -> JoinToken:
        """A one-time token with which the node of that name may join."""
        return self.post("/join-tokens", JoinToken, json={"name": node_name})


class TeamClient(PlanCalls, RunCalls):
    """Calls that belong to one team. Get it from `Client.team`."""

    _client: Client

    def __init__(self, client: Client, slug: str) -> None:
        self._client = client
        self._path = f"/teams/{quote(slug, safe='')}"

    def show(self) -> Team:
        """The team, its quota and its storage."""
        return self._client.get(self._path, Team)

    def set_storage(self, limit_bytes: int) -> StorageUse:
        """Change how many bytes of files the team may store. For site admins."""
        return self._client.put(f"{self._path}/storage", StorageUse, json={"limit_bytes": limit_bytes})

    # --- invitations

    def invite(self, email: str, role: Role = Role.VIEWER) -> Invitation:
        """Invite somebody into the team; the link to send to them is shown this once. For owners."""
        new = NewInvitation(email=email, role=role).model_dump(mode="json")
        return self._client.post(f"{self._path}/invitations", Invitation, json=new)

    def invitations(self) -> list[OpenInvitation]:
        """Invitations whose links still work, the newest first. For owners."""
        return self._client.get_list(f"{self._path}/invitations", OpenInvitation)

    def revoke_invitation(self, invitation_id: str) -> None:
        """Let the link of an invitation work no more. For owners."""
        self._client.delete(f"{self._path}/invitations/{invitation_id}")

    # --- datasets

    def datasets(self) -> list[Dataset]:
        return self._pages(f"{self._path}/datasets", Dataset)

    def dataset(self, dataset_id: str) -> Dataset:
        return self._client.get(f"{self._path}/datasets/{dataset_id}", Dataset)

    def upload(
        self,
        name: str,
        files: Sequence[Path],
        recipe: Recipe | None = None,
        on_progress: Progress | None = None,
    ) -> Dataset:
        """Upload files and folders as version 1 of a new dataset.

        A call that was cut off, also by the end of the process, goes on where it was when it is made again.
        """
        new = {"name": name} | ({"recipe": recipe.model_dump(mode="json")} if recipe is not None else {})
        return self._upload(f"{self._path}/datasets", new, files, on_progress)

    def upload_version(
        self,
        dataset_id: str,
        files: Sequence[Path],
        recipe: Recipe | None = None,
        on_progress: Progress | None = None,
        *,
        keep_files: bool = False,
    ) -> Dataset:
        """Upload files and folders as the next version of a dataset, or add them to the files of its newest."""
        new: dict[str, Any] = {"keep_files": keep_files}
        new |= {"recipe": recipe.model_dump(mode="json")} if recipe is not None else {}
        return self._upload(f"{self._path}/datasets/{dataset_id}/versions", new, files, on_progress)

    def change_recipe(self, dataset_id: str, recipe: Recipe) -> Dataset:
        """A next version with the newest one's files and another recipe."""
        new = {"recipe": recipe.model_dump(mode="json")}
        return self._client.post(f"{self._path}/datasets/{dataset_id}/versions", Dataset, json=new)

    def mix(self, name: str, recipe: Recipe) -> Dataset:
        """A dataset without files of its own: the mixture that the recipe describes."""
        new = {"name": name, "recipe": recipe.model_dump(mode="json")}
        return self._client.post(f"{self._path}/datasets", Dataset, json=new)

    def preview(
        self, files: Sequence[Path], recipe: Recipe | None = None, on_progress: Progress | None = None
    ) -> Preview:
        """What files hold, by their first rows. They are sent for it; `upload` then has little left to send."""
        _, ids = self._send(find_files(files).files, on_progress)
        asked = {"uploads": ids} | ({"recipe": recipe.model_dump(mode="json")} if recipe is not None else {})
        return self._client.post(f"{self._path}/uploads/preview", Preview, json=asked)

    def uploads(self) -> list[Upload]:
        """Uploads under way, and complete ones that no dataset has taken."""
        return self._client.get_list(f"{self._path}/uploads", Upload)

    def count(
        self, recipe: Recipe, dataset_id: str | None = None, version: int | None = None
    ) -> RecipeCounts:
        """What a recipe would keep of a version's documents, or what a mixture would hold."""
        asked = CountRequest(dataset=dataset_id, version=version, recipe=recipe).model_dump(mode="json")
        return self._client.post(f"{self._path}/datasets/count", RecipeCounts, json=asked)

    def documents(
        self, dataset_id: str, version: int, limit: int = 50, cursor: str | None = None
    ) -> Page[DocumentSample]:
        """A page of a version's documents, with what the recipe does to each."""
        path = f"{self._path}/datasets/{dataset_id}/versions/{version}/documents"
        asked = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        return self._client.get(path, Page[DocumentSample], asked)

    def rejected_documents(self, dataset_id: str, version: int) -> list[RejectedDocument]:
        path = f"{self._path}/datasets/{dataset_id}/versions/{version}/rejected"
        return self._client.get_list(path, RejectedDocument)

    def delete_dataset(self, dataset_id: str) -> None:
        self._client.delete(f"{self._path}/datasets/{dataset_id}")

    def delete_version(self, dataset_id: str, version: int) -> None:
        self._client.delete(f"{self._path}/datasets/{dataset_id}/versions/{version}")

    def prepare(
        self,
        dataset_id: str,
        version: int | None = None,
        tokenizer: TokenizerSpec | None = None,
        validation_fraction: float = 0.01,
    ) -> Preparation:
        """Have a version's tokens made for one tokenizer and split; one that is there already is returned."""
        new = NewPreparation(
            version=version,
            tokenizer=tokenizer or TokenizerSpec(),
            validation_fraction=validation_fraction,
        )
        path = f"{self._path}/datasets/{dataset_id}/preparations"
        return self._client.post(path, Preparation, json=new.model_dump(mode="json"))

    def cancel_preparation(self, dataset_id: str, preparation_id: str) -> Preparation:
        """Stop making a preparation; what is done of it stays for the next time."""
        path = f"{self._path}/datasets/{dataset_id}/preparations/{preparation_id}/cancel"
        return self._client.post(path, Preparation)

    def tokenizers(self) -> list[Tokenizer]:
        """The team's uploaded tokenizers."""
        return self._client.get_list(f"{self._path}/tokenizers", Tokenizer)

    def upload_tokenizer(self, name: str, file: Path) -> Tokenizer:
        """Upload a `tokenizer.json`."""
        found = find_files([file]).files
        sender, (upload,) = self._send(found, None)
        new = NewTokenizer(name=name, upload=upload).model_dump(mode="json")
        made = self._client.post(f"{self._path}/tokenizers", Tokenizer, json=new)
        sender.forget(found)
        return made

    def delete_tokenizer(self, tokenizer_id: str) -> None:
        self._client.delete(f"{self._path}/tokenizers/{tokenizer_id}")

    # --- runs

    def submit(self, spec: Mapping[str, Any] | RunSpec) -> Run:
        return self._client.post_repeatable(f"{self._path}/runs", Run, json=as_json(spec))

    def runs(self, state: str | None = None, **query: Any) -> list[Run]:
        """All runs, newest first; ``query`` filters and sorts: ``q``, ``by``, ``tag``, ``ids``, ``sort``, ``order``."""
        return self._pages(f"{self._path}/runs", Run, query | ({"state": state} if state else {}))

    def run(self, run_id: str) -> Run:
        return self._client.get(f"{self._path}/runs/{run_id}", Run)

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

    def wait_for_version(self, dataset_id: str, number: int, poll_seconds: float = 1.0) -> DatasetVersion:
        """Wait until a version has been read and its first preparation has ended, or either has failed.

        Raises:
            LookupError: it was deleted meanwhile.
        """
        while True:
            versions = self.dataset(dataset_id).versions
            version = next((one for one in versions if one.number == number), None)
            if version is None:
                raise LookupError(f"version {number} of {dataset_id} was deleted meanwhile")
            if version.state is VersionState.FAILED or _is_prepared(version):
                return version
            time.sleep(poll_seconds)

    def events(self, run_id: str, after: int = 0) -> list[RunEvent]:
        return self._client.get_list(f"{self._path}/runs/{run_id}/events", RunEvent, {"after": after})

    def metrics(
        self, run_id: str, names: Sequence[str] = (), points: int | None = None, **window: int
    ) -> Metrics:
        """Curves; ``window`` is ``after_step`` and ``to_step``."""
        params: dict[str, Any] = {**window, **({"names": list(names)} if names else {})}
        if points is not None:
            params["points"] = points
        return self._client.get(f"{self._path}/runs/{run_id}/metrics", Metrics, params)

    def compare_metrics(
        self, run_ids: Sequence[str], names: Sequence[str] = (), points: int | None = None, **window: int
    ) -> list[RunSeries]:
        """Curves of up to a hundred runs; ``window`` is as in `metrics`. Runs that are not the team's are left out."""
        params: dict[str, Any] = {"runs": list(run_ids), **window}
        if names:
            params["names"] = list(names)
        if points is not None:
            params["points"] = points
        return self._client.get_list(f"{self._path}/metrics", RunSeries, params)

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

    def log_lines(self, run_id: str, attempt: int, file: str, first: int = 1, limit: int = 1_000) -> LogLines:
        path = f"{self._path}/runs/{run_id}/logs/{attempt}/{quote(file, safe='')}/lines"
        return self._client.get(path, LogLines, {"first": first, "limit": limit})

    def search_log(self, run_id: str, attempt: int, file: str, words: str, after_line: int = 0) -> LogMatches:
        """Lines that contain ``words``; go on from `LogMatches.searched_to` until its `end`."""
        path = f"{self._path}/runs/{run_id}/logs/{attempt}/{quote(file, safe='')}/search"
        return self._client.get(path, LogMatches, {"q": words, "after_line": after_line})

    # --- checkpoints

    def checkpoints(self, run_id: str) -> list[Checkpoint]:
        return self._client.get_list(f"{self._path}/runs/{run_id}/checkpoints", Checkpoint)

    def all_checkpoints(
        self, kind: CheckpointKind | None = None, pinned: bool | None = None
    ) -> list[Checkpoint]:
        """The checkpoints and exports of all the team's runs, newest first."""
        asked = {"kind": kind, "pinned": pinned}
        given = {name: value for name, value in asked.items() if value is not None}
        return self._pages(f"{self._path}/checkpoints", Checkpoint, given)

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
            state = self.run(run_id).state
            if state in FINAL:
                raise LookupError(
                    f"run {run_id} is {state.value} and has no export: one is made when a run succeeds. Name one of its "
                    "checkpoints instead"
                )
            raise LookupError(f"run {run_id} has no export yet: it is made when the run succeeds")
        return max(exports, key=lambda checkpoint: checkpoint.step)

    def _upload(
        self, path: str, new: Mapping[str, Any], paths: Sequence[Path], on_progress: Progress | None
    ) -> Dataset:
        files = find_files(paths).files
        sender, ids = self._send(files, on_progress)
        made = self._client.post(path, Dataset, json={**new, "uploads": ids})
        sender.forget(files)
        return made

    def _send(self, files: Sequence[LocalFile], on_progress: Progress | None) -> tuple[Sender, list[str]]:
        sender = Sender(self._client, f"{self._path}/uploads")
        meter = _Meter(sum(file.size_bytes for file in files), on_progress)
        return sender, sender.send(files, meter.add)

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


def _is_there(target: Path, file: CheckpointFile) -> bool:
    if not target.is_file() or target.stat().st_size != file.bytes:
        return False
    with target.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.digest


def _is_prepared(version: DatasetVersion) -> bool:
    """Whether nothing is under way any more; a version without preparations waits for none."""
    going = (PreparationState.WAITING, PreparationState.WORKING)
    return version.state is VersionState.READY and all(one.state not in going for one in version.preparations)
