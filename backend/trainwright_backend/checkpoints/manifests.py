"""Manifests of uploads: verifying them, and summarizing a checkpoint's contents."""

from math import prod
from typing import Any

from pydantic import ValidationError

from trainwright.contracts.api.checkpoints import CheckpointContents
from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, FileEntry, digest_of
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.runs.tables import Attempt, Run

MAX_MANIFEST_BYTES = 64 * 1024 * 1024


def verify_upload(store: ObjectStore, checkpoint: Checkpoint, manifest_digest: str) -> CheckpointManifest:
    """Compare the announced files with the store and the manifest. Call this outside transactions.

    Returns:
        The manifest.

    Raises:
        Conflict: ``checkpoint_incomplete``: the store lacks a file, or the manifest does not match.
    """
    files = {file["name"]: FileEntry.model_validate(file) for file in checkpoint.files}
    for file in files.values():
        if store.stat(f"{checkpoint.prefix}/{file.name}") != file.bytes:
            raise _incomplete(f"{file.name} is not in the store with its {file.bytes} bytes")
    manifest_file = next((file for file in files.values() if file.digest == manifest_digest), None)
    if manifest_file is None or manifest_file.bytes > MAX_MANIFEST_BYTES:
        raise _incomplete("no announced file is the manifest with this digest")
    content = store.read(f"{checkpoint.prefix}/{manifest_file.name}")
    if digest_of(content) != manifest_digest:
        raise _incomplete("the stored manifest has another digest")
    try:
        manifest = CheckpointManifest.model_validate_json(content)
    except ValidationError:
        raise _incomplete("the manifest cannot be read") from None
    if (manifest.kind, manifest.step) != (checkpoint.kind, checkpoint.step):
        raise _incomplete(f"the manifest is of {manifest.kind} at step {manifest.step}")
    listed = {file.name: file for file in manifest.files}
    if listed != {name: file for name, file in files.items() if name != manifest_file.name}:
        raise _incomplete("names, sizes or digests differ from the manifest's")
    return manifest


def checkpoint_contents(session: Read, run: Run, manifest: CheckpointManifest) -> dict[str, Any]:
    """Summary of the manifest: ranks, parameters, dtypes, and the step it was resumed from."""
    sizes = {name: prod(entry.shape) for name, entry in manifest.tensors.items()}
    scales = {entry.scale for entry in manifest.tensors.values() if entry.scale is not None}
    weights = [name for name in sizes if manifest.kind is CheckpointKind.EXPORT or name.startswith("model.")]
    dtypes: dict[str, int] = {}
    for name, entry in manifest.tensors.items():
        dtypes[entry.dtype] = dtypes.get(entry.dtype, 0) + sizes[name]
    attempt = session.get(Attempt, (run.id, run.attempt))
    resumed = attempt is not None and manifest.parent_digest is not None and attempt.resume_step > 0
    return CheckpointContents(
        ranks=manifest.world_size,
        parameters=sum(sizes[name] for name in weights if name.partition("@")[0] not in scales),
        dtypes=dtypes,
        resumed_from_step=attempt.resume_step if attempt is not None and resumed else None,
    ).model_dump(mode="json")


def _incomplete(what: str) -> Conflict:
    return Conflict(
        "checkpoint_incomplete", f"The checkpoint is not complete: {what}. Ask for upload links again."
    )
