"""A preview of uploads: what the files hold, by their first rows, before a dataset is made of them.

The files are opened by a child process with a limit on its time and memory (`look`), never by the process that
answers requests. Few such children run at once; whoever asks beyond that waits a little, or is told to ask again.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore
from uuid import UUID

from pydantic import ValidationError

from trainwright.contracts.api.uploads import Preview, PreviewFile, PreviewRequest, RejectedDocument
from trainwright.contracts.recipe import ReadSpec, Recipe
from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import Busy
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.datasets.look import OUT_OF_MEMORY, Look, LookedAt, Seen, too_large
from trainwright_backend.uploads.service import UploadedFile, complete_uploads

OPENED = 20
"""Files of a preview that are opened."""

SECONDS = 10.0
"""For looking at files until one has used up the time."""

MOST_SECONDS = 30.0
"""For the whole preview, when several files use up theirs."""

MEMORY_BYTES = 2 * 2**30
"""Of the process that looks."""

LOOKING = BoundedSemaphore(2)
"""Previews at once, of one server process."""

ASKING = BoundedSemaphore(8)
"""Previews at once with those that wait: each of them holds a thread that answers requests."""

WAIT_SECONDS = 10.0


def preview(database: Database, store: LocalStore, team_id: UUID, asked: PreviewRequest) -> Preview:
    """What complete uploads hold.

    Raises:
        Invalid: an upload is unknown or not complete.
        Busy: too many previews are under way.
    """
    with database.write() as session:
        uploads = complete_uploads(session, team_id, asked.uploads)
    opened = uploads[:OPENED]
    with _turn():
        seen = look(opened, store, asked.recipe.read)
    named = zip(asked.uploads, uploads, [*seen, *[_unopened()] * (len(uploads) - len(opened))], strict=True)
    files = [_shown(upload, file.name, one) for upload, file, one in named]
    return Preview(files=files, recipe=_completed(asked.recipe, seen))


def look(files: Sequence[UploadedFile], store: LocalStore, read: ReadSpec) -> list[Seen]:
    """Look at files in a child process; one that kills it is told so, and the next child goes on after it."""
    jobs = [LookedAt(name=file.name, path=str(store.path_of(file.object_key))) for file in files]
    deadline = time.monotonic() + MOST_SECONDS
    seen: list[Seen] = []
    while len(seen) < len(jobs):
        left = deadline - time.monotonic()
        if left <= 0:
            seen.append(
                Seen(problem="This file was not looked at: those before it took too long. Preview it alone.")
            )
            continue
        found, why = _child(jobs[len(seen) :], read, min(SECONDS, left))
        seen += found
        if why is not None and len(seen) < len(jobs):
            seen.append(Seen(problem=why.format(name=jobs[len(seen)].name)))
    return seen


@contextmanager
def _turn() -> Iterator[None]:
    """Wait until few enough previews are under way."""
    if not ASKING.acquire(blocking=False):
        raise _busy()
    try:
        if not LOOKING.acquire(timeout=WAIT_SECONDS):
            raise _busy()
        try:
            yield
        finally:
            LOOKING.release()
    finally:
        ASKING.release()


def _busy() -> Busy:
    detail = "Many previews are under way. Ask again in a few seconds."
    return Busy("previews_busy", detail, retry_after_seconds=5)


def _child(jobs: Sequence[LookedAt], read: ReadSpec, seconds: float) -> tuple[list[Seen], str | None]:
    """What a child saw, and why it saw no more."""
    command = [sys.executable, "-P", "-m", "trainwright_backend.datasets.look"]
    job = Look(files=list(jobs), read=read, memory_bytes=MEMORY_BYTES).model_dump_json().encode()
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(),
        start_new_session=True,
    ) as child:
        try:
            answer, _ = child.communicate(job, seconds)
        except subprocess.TimeoutExpired:
            _kill(child)
            answer, _ = child.communicate()
            late = f"Looking at {{name}} took longer than {SECONDS:g} s. See whether the file is damaged."
            return _lines(answer), late
        except BaseException:
            _kill(child)
            raise
    found = _lines(answer)
    if len(found) == len(jobs):
        return found, None
    _kill(child)
    if child.returncode == OUT_OF_MEMORY:
        return found, too_large("{name}", MEMORY_BYTES)
    return (
        found,
        "{name} cannot be read: its content ended the program that looked at it. Write the file anew.",
    )


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it has started: a session of their own, of which one may outlive the other."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """What Python needs to start, and none of this process's secrets."""
    needed = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    return {**needed, "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def _lines(output: bytes) -> list[Seen]:
    """What was said in whole lines."""
    found = []
    for line in output.splitlines(keepends=True):
        if line.endswith(b"\n"):
            try:
                found.append(Seen.model_validate_json(line))
            except ValidationError:
                break
    return found


def _unopened() -> Seen:
    return Seen(problem=f"Not looked at: a preview opens the first {OPENED} files.")


def _shown(upload: str, name: str, seen: Seen) -> PreviewFile:
    return PreviewFile(
        upload=upload,
        name=name,
        format=seen.format,
        compression=seen.compression,
        columns=seen.columns,
        field=seen.field,
        documents=seen.documents,
        rejected=[RejectedDocument(file=name, line=row.line, reason=row.reason) for row in seen.rejected],
        problem=seen.problem,
    )


def _completed(recipe: Recipe, seen: Sequence[Seen]) -> Recipe:
    """``recipe`` with the field filled in, when all files that have fields agree on it."""
    fields = {one.field for one in seen if one.field is not None}
    if recipe.read.field is not None or len(fields) != 1:
        return recipe
    return recipe.model_copy(update={"read": recipe.read.model_copy(update={"field": fields.pop()})})
