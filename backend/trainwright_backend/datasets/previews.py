"""Previews of uploads: the first rows of files, before a dataset is created from them.

A child process with limited time and memory opens the files (`sample_rows`), never the process that serves requests. Few
such children run at once; further requests wait a little, or are asked to retry.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import BoundedSemaphore
from uuid import UUID

from pydantic import ValidationError

from trainwright.contracts.api.uploads import Preview, PreviewFile, PreviewRequest, RejectedDocument
from trainwright.contracts.curation import CurationSpec, ReadSpec
from trainwright_backend.core.db import Database
from trainwright_backend.core.errors import Busy
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.sample_rows import (
    OUT_OF_MEMORY,
    FileSample,
    FileToSample,
    SampleRequest,
    too_large,
)
from trainwright_backend.uploads.service import UploadedFile, complete_uploads

MAX_FILES = 20
"""Files of a preview that are opened."""

CHILD_SECONDS = 10.0
"""Time limit of one child, which ends with the first file that takes too long."""

PREVIEW_SECONDS = 30.0
"""Time limit of the entire preview, if several files take too long."""

MEMORY_BYTES = 2 * 2**30
"""Memory limit of a child."""

RUNNING_PREVIEWS = BoundedSemaphore(2)
"""Previews that run at once in one server process."""

PENDING_PREVIEWS = BoundedSemaphore(8)
"""Previews that run or wait at once: each occupies a thread that serves requests."""

WAIT_SECONDS = 10.0


def preview(database: Database, store: ObjectStore, team_id: UUID, request: PreviewRequest) -> Preview:
    """Sample the files of complete uploads.

    Raises:
        Invalid: an upload is unknown or not complete.
        Busy: too many previews are running.
    """
    with database.write() as session:
        uploads = complete_uploads(session, team_id, request.uploads)
    opened = uploads[:MAX_FILES]
    with _turn():
        samples = sample_files(opened, store, request.curation.read)
    skipped = [_skipped()] * (len(uploads) - len(opened))
    named = zip(request.uploads, uploads, [*samples, *skipped], strict=True)
    files = [_to_response(upload, file.name, sample) for upload, file, sample in named]
    return Preview(files=files, curation=_with_field(request.curation, samples))


def sample_files(files: Sequence[UploadedFile], store: ObjectStore, read: ReadSpec) -> list[FileSample]:
    """Sample files in a child process. After a file that kills it, another child continues with the next one."""
    paths = [FileToSample(name=file.name, path=str(store.local_file(file.object_key))) for file in files]
    deadline = time.monotonic() + PREVIEW_SECONDS
    samples: list[FileSample] = []
    while len(samples) < len(paths):
        left = deadline - time.monotonic()
        if left <= 0:
            problem = "This file was not opened: those before it took too long. Preview it alone."
            samples.append(FileSample(problem=problem))
            continue
        found, problem_of = _run_child(paths[len(samples) :], read, min(CHILD_SECONDS, left))
        samples += found
        if problem_of is not None and len(samples) < len(paths):
            samples.append(FileSample(problem=problem_of.format(name=paths[len(samples)].name)))
    return samples


@contextmanager
def _turn() -> Iterator[None]:
    """Wait until few enough previews are running."""
    if not PENDING_PREVIEWS.acquire(blocking=False):
        raise _busy()
    try:
        if not RUNNING_PREVIEWS.acquire(timeout=WAIT_SECONDS):
            raise _busy()
        try:
            yield
        finally:
            RUNNING_PREVIEWS.release()
    finally:
        PENDING_PREVIEWS.release()


def _busy() -> Busy:
    detail = "Too many previews are running. Try again in a few seconds."
    return Busy("previews_busy", detail, retry_after_seconds=5)


def _run_child(
    files: Sequence[FileToSample], read: ReadSpec, seconds: float
) -> tuple[list[FileSample], str | None]:
    """Run a child over ``files``.

    Returns:
        The samples that it wrote, and the problem of the file that stopped it, if one did.
    """
    request = SampleRequest(files=list(files), read=read, memory_bytes=MEMORY_BYTES)
    with _start_child() as child, ExitStack() as cleanup:
        cleanup.callback(_kill, child)
        try:
            output, _ = child.communicate(request.model_dump_json().encode(), seconds)
        except subprocess.TimeoutExpired:
            _kill(child)
            output, _ = child.communicate()
            late = (
                f"Reading {{name}} took longer than {CHILD_SECONDS:g} s. Check whether the file is damaged."
            )
            return _parse(output), late
        samples = _parse(output)
        if len(samples) == len(files):
            cleanup.pop_all()
            return samples, None
    if child.returncode == OUT_OF_MEMORY:
        return samples, too_large("{name}", MEMORY_BYTES)
    return samples, "{name} cannot be read: its content crashed the reader. Write the file again."


def _start_child() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "trainwright_backend.datasets.sample_rows"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(),
        start_new_session=True,
    )


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's session: a process that it started may outlive it."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """The variables that Python needs to start, without this process's secrets."""
    needed = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    return {**needed, "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def _parse(output: bytes) -> list[FileSample]:
    """The samples in complete lines of a child's output."""
    samples = []
    for line in output.splitlines(keepends=True):
        if line.endswith(b"\n"):
            try:
                samples.append(FileSample.model_validate_json(line))
            except ValidationError:
                break
    return samples


def _skipped() -> FileSample:
    return FileSample(problem=f"Not opened: a preview opens the first {MAX_FILES} files.")


def _to_response(upload: str, name: str, sample: FileSample) -> PreviewFile:
    return PreviewFile(
        upload=upload,
        name=name,
        format=sample.format,
        compression=sample.compression,
        columns=sample.columns,
        field=sample.field,
        documents=sample.documents,
        rejected=[RejectedDocument(file=name, line=row.line, reason=row.reason) for row in sample.rejected],
        problem=sample.problem,
    )


def _with_field(curation: CurationSpec, samples: Sequence[FileSample]) -> CurationSpec:
    """``curation`` with the field filled in, if all files that have fields agree on it."""
    fields = {sample.field for sample in samples if sample.field is not None}
    if curation.read.field is not None or len(fields) != 1:
        return curation
    return curation.model_copy(update={"read": curation.read.model_copy(update={"field": fields.pop()})})
