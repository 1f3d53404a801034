"""Reading checkpoints: every byte is checked before any tensor is used.

The manifest must have the digest that the job names, each file the size and digest that the manifest names, and the
tensors the names and shapes of this model. The ranks share the hashing; if one finds a fault, all refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import AdamW

from trainwright.contracts.checkpoint import (
    CheckpointKind,
    CheckpointManifest,
    FileEntry,
    TensorEntry,
    digest_of,
)
from trainwright.contracts.shards import MANIFEST_NAME
from trainwright_trainer.checkpoint.files import hash_file
from trainwright_trainer.checkpoint.snapshot import MOMENTS
from trainwright_trainer.ends import CheckpointInvalidError
from trainwright_trainer.mesh import Mesh


def read_checkpoint(folder: Path, config_digest: str, digest: str | None) -> CheckpointManifest:
    """Read and check the manifest; ``digest`` is what it must hash to, None for one written here.

    Raises:
        CheckpointInvalidError: it is missing, damaged, of another kind, or of another configuration.
    """
    try:
        content = (folder / MANIFEST_NAME).read_bytes()
        manifest = CheckpointManifest.model_validate_json(content)
    except (OSError, ValidationError) as error:
        raise CheckpointInvalidError(f"{folder.name}: the manifest cannot be read") from error
    if digest is not None and digest_of(content) != digest:
        raise CheckpointInvalidError(f"{folder.name}: the manifest is not the one that was committed")
    if manifest.kind is not CheckpointKind.STATE or manifest.config_digest != config_digest:
        raise CheckpointInvalidError(f"{folder.name}: the checkpoint belongs to another configuration")
    return manifest


def verify_files(folder: Path, files: Sequence[FileEntry]) -> None:
    """Compare sizes and digests of ``files`` with what lies on disk.

    Raises:
        CheckpointInvalidError: naming the first file that differs.
    """
    for entry in files:
        path = folder / entry.name
        if path.name != entry.name or not path.is_file():
            raise CheckpointInvalidError(f"{folder.name}: {entry.name} is missing")
        if path.stat().st_size != entry.bytes or hash_file(path) != entry.digest:
            raise CheckpointInvalidError(f"{folder.name}: {entry.name} does not match the manifest")


def verify_together(folder: Path, manifest: CheckpointManifest, mesh: Mesh) -> None:
    """Verify all files, a share a rank; all ranks agree on the answer."""
    fault: CheckpointInvalidError | None = None
    try:
        verify_files(folder, manifest.files[mesh.rank :: mesh.ranks])
    except CheckpointInvalidError as error:
        fault = error
    faults = mesh.sum(torch.tensor(float(fault is not None), device=mesh.device))
    if faults > 0:
        raise fault or CheckpointInvalidError(
            f"{folder.name}: another rank found a file that does not match the manifest"
        )


def restore(folder: Path, manifest: CheckpointManifest, model: nn.Module, optimizer: AdamW) -> None:
    """Fill ``model`` and ``optimizer`` from a verified checkpoint, with one tensor at a time in host memory."""

    def read(name: str, weight: Tensor) -> Tensor:
        return read_tensor(folder, manifest, name, weight.shape).to(weight.device)

    for name, weight in model.named_parameters():
        weight.data.copy_(read(f"model.{name}", weight))
        # What AdamW itself keeps of a weight: with fused=True the number of steps too is on the weight's device.
        made = torch.tensor(float(manifest.step), device=weight.device)
        moments = {moment: read(f"optimizer.{moment}.{name}", weight) for moment in MOMENTS}
        optimizer.state[weight] = {"step": made} | moments


def read_tensor(folder: Path, manifest: CheckpointManifest, name: str, shape: Sequence[int]) -> Tensor:
    """Assemble one tensor from its pieces in verified files.

    Raises:
        CheckpointInvalidError: it is missing, has another shape, or its pieces do not fill it.
    """
    entry = manifest.tensors.get(name)
    if entry is None or entry.shape != tuple(shape):
        raise CheckpointInvalidError(f"{folder.name}: {name} is missing or has not the shape {tuple(shape)}")
    if not {file.name for file in manifest.files}.issuperset(piece.file for piece in entry.pieces):
        raise CheckpointInvalidError(f"{folder.name}: {name} lies in a file that the manifest does not list")
    return _assemble(folder, name, entry)


def _assemble(folder: Path, name: str, entry: TensorEntry) -> Tensor:
    tensor = torch.empty(entry.shape, dtype=torch.float32)
    filled = 0
    for piece in entry.pieces:
        where = tuple(
            slice(first, first + size) for first, size in zip(piece.start, piece.shape, strict=True)
        )
        try:
            with safe_open(folder / piece.file, framework="pt") as file:
                tensor[where] = file.get_tensor(name)
        except (SafetensorError, RuntimeError) as error:
            raise CheckpointInvalidError(f"{folder.name}: {name} cannot be read from {piece.file}") from error
        filled += torch.Size(piece.shape).numel()
    if filled != tensor.numel():
        raise CheckpointInvalidError(f"{folder.name}: the pieces of {name} do not fill it")
    return tensor
