"""Manifests of older checkpoints are read with the current names."""

from trainwright.contracts.checkpoint import CheckpointManifest


def test_pieces_in_older_manifests_are_read_as_slices() -> None:
    piece = {"file": "tensors-0-00000.safetensors", "start": [4, 0], "shape": [4, 8]}
    tensor = {"shape": [8, 8], "dtype": "float32", "pieces": [piece]}
    manifest = {"kind": "state", "step": 3, "files": [], "config_digest": "0", "code_version": "0.1.0"}
    (entry,) = CheckpointManifest.model_validate(manifest | {"tensors": {"w": tensor}}).tensors.values()
    (one,) = entry.slices
    assert (one.file, one.offset, one.shape) == (piece["file"], (4, 0), (4, 8))
