"""Exports: the weights of a checkpoint in the layout of Hugging Face's models, with the tokenizer.

Rotary features are already in that layout's order, so for most classes exporting only renames tensors (``export_layout``); the
same table in reverse loads an export for sampling. If `transformers` has no class for a model (``contracts.export_architecture``), its export has our
names and a copy of ``plain_model``, which loads it without our packages. We never run that copy. Exported weights are
real numbers in float32, or rounded to bfloat16 for half the size. Weights are read and written one by one, in files of
at most 4 GiB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, FileEntry
from trainwright.contracts.export_architecture import PLAIN, PLAIN_FILE, architecture_of
from trainwright.contracts.hugging_face import PARTIAL, HuggingFaceArchitecture
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.token_shards import TOKENIZER_NAME, ShardManifest
from trainwright_trainer.checkpoint.export_layout import StoredTensor, stored_tensors
from trainwright_trainer.checkpoint.load import read_tensor, verify_files
from trainwright_trainer.checkpoint.save import code_version, replace_folder, write_manifest
from trainwright_trainer.checkpoint.snapshot import used_fields
from trainwright_trainer.checkpoint.tensor_files import (
    TensorShape,
    write_hashed,
    write_tensors_one_by_one,
)
from trainwright_trainer.data.token_shards import read_manifest
from trainwright_trainer.model.transformer import Transformer

WEIGHTS_NAME = "model.safetensors"
OWN_KEY = "trainwright"
"""Key in `config.json` of the model's own spec, which loads an export of any architecture. `transformers` ignores it."""

INDEX_NAME = "model.safetensors.index.json"
"""The index that `transformers` expects with several files of weights."""

FILE_BYTES = 4 * 2**30
"""The largest size of a file of weights, unless one weight is larger: files of many GiB are slow to copy again."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_PLAIN_MODEL = Path(__file__).with_name("plain_model.py")


def export(
    checkpoint: Path, manifest: CheckpointManifest, digest: str, data: Path, spec: RunSpec, out: Path
) -> str:
    """Write the export of ``checkpoint`` to the folder ``out``; returns the digest of its manifest.

    Raises:
        CheckpointInvalidError: a file does not match ``manifest``.
    """
    verify_files(checkpoint, manifest.files)
    draft = out.with_name(f"{out.name}.tmp-{uuid4().hex[:12]}")
    draft.mkdir(parents=True)
    files = _write_weights(draft, checkpoint, manifest, spec)
    for name, content in _side_files(spec, read_manifest(data), data).items():
        files.append(write_hashed(draft / name, [content]))
    described = CheckpointManifest(
        kind=CheckpointKind.EXPORT,
        step=manifest.step,
        files=files,
        config_digest=manifest.config_digest,
        code_version=code_version(),
        parent_digest=digest,
    )
    export_digest = write_manifest(draft, described.to_bytes())
    replace_folder(draft, out)
    return export_digest


def load_export(folder: Path) -> tuple[Transformer, Tokenizer]:
    """Build the model and the tokenizer of an export."""
    config = json.loads((folder / "config.json").read_bytes())
    spec = _model_spec(config)
    model = Transformer(spec, config["vocab_size"], config["max_position_embeddings"])
    weights = {
        name: weight
        for path in sorted(folder.glob("*.safetensors"))
        for name, weight in load_file(path).items()
    }
    theirs = architecture_of(spec)
    own = {
        source: weight.float() + theirs.norm_offset if weight.ndim == 1 else weight
        for name, stored in stored_tensors(theirs, spec, weight_shapes(model)).items()
        if stored.sources
        for source, weight in zip(stored.sources, stored.split(weights[name]), strict=True)
    }
    model.load_state_dict(own, strict=False)
    return model, Tokenizer.from_file(str(folder / TOKENIZER_NAME))


def _model_spec(config: dict[str, Any]) -> ModelSpec:
    if config["model_type"] == PLAIN.model_type:
        return ModelSpec.model_validate(config["model"])
    if OWN_KEY in config:
        return ModelSpec.model_validate(config[OWN_KEY])
    return ModelSpec.model_validate(  # older exports have no options: they are all Llama's
        {
            "layers": config["num_hidden_layers"],
            "width": config["hidden_size"],
            "heads": config["num_attention_heads"],
            "kv_heads": config["num_key_value_heads"],
            "head_size": config["head_dim"],
            "feed_forward": config["intermediate_size"],
            "rope_theta": config["rope_theta"],
            "norm_epsilon": config["rms_norm_eps"],
            "tied_embeddings": config["tie_word_embeddings"],
        }
    )


def weight_shapes(model: Transformer) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of ``model``, by canonical name."""
    return {name: tuple(weight.shape) for name, weight in model.named_parameters()}


def exported_tensor(
    stored: StoredTensor, theirs: HuggingFaceArchitecture, weights: Callable[[str], Tensor]
) -> Tensor:
    """A tensor of an export, from our ``weights`` by name."""
    if not stored.sources:
        return torch.zeros(stored.shape)
    parts = [weights(source) for source in stored.sources]
    return stored.join([part - theirs.norm_offset if part.ndim == 1 else part for part in parts])


def _write_weights(
    folder: Path, checkpoint: Path, manifest: CheckpointManifest, spec: RunSpec
) -> list[FileEntry]:
    """Write one weight after the other, so that only the largest must fit into memory; several files get an index."""
    with torch.device("meta"):
        model = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    dtype = DTYPES[spec.export_format]
    theirs = architecture_of(spec.model)
    ours = weight_shapes(model)
    stored = stored_tensors(theirs, spec.model, ours)
    shapes = {name: TensorShape(dtype, each.shape) for name, each in stored.items()}

    def weight(name: str) -> Tensor:
        return read_tensor(checkpoint, manifest, f"model.{name}", ours[name])

    def read(name: str) -> Tensor:
        return exported_tensor(stored[name], theirs, weight).to(dtype)

    groups = list(_groups(shapes, FILE_BYTES))
    if len(groups) == 1:
        return [write_tensors_one_by_one(folder / WEIGHTS_NAME, shapes, read)]
    files: list[FileEntry] = []
    places: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        name = f"model-{number:05}-of-{len(groups):05}.safetensors"
        files.append(write_tensors_one_by_one(folder / name, group, read))
        places |= dict.fromkeys(group, name)
    total = sum(shape.bytes for shape in shapes.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    return [*files, write_hashed(folder / INDEX_NAME, [_json(index)])]


def _groups(shapes: Mapping[str, TensorShape], most_bytes: int) -> Iterator[dict[str, TensorShape]]:
    """Consecutive weights that fit into a file of ``most_bytes``; a larger one gets a separate file."""
    group: dict[str, TensorShape] = {}
    for name, shape in shapes.items():
        if group and sum(each.bytes for each in group.values()) + shape.bytes > most_bytes:
            yield group
            group = {}
        group[name] = shape
    yield group


def _side_files(spec: RunSpec, data: ShardManifest, folder: Path) -> dict[str, bytes]:
    tokenizer = (folder / TOKENIZER_NAME).read_bytes()
    end_token = Tokenizer.from_str(tokenizer.decode()).id_to_token(data.end_of_text)
    special = {"bos_token": end_token, "eos_token": end_token}
    settings = special | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": spec.batch.sequence_tokens,
        "clean_up_tokenization_spaces": False,
    }
    ends = {"bos_token_id": data.end_of_text, "eos_token_id": data.end_of_text}
    plain = architecture_of(spec.model) is PLAIN
    return ({PLAIN_FILE: _PLAIN_MODEL.read_bytes()} if plain else {}) | {
        "config.json": _json(model_config(spec) | ends),
        "generation_config.json": _json(ends),
        TOKENIZER_NAME: tokenizer,
        "tokenizer_config.json": _json(settings),
        "special_tokens_map.json": _json(special),
    }


def model_config(spec: RunSpec) -> dict[str, Any]:
    """`config.json` without the ids of special tokens."""
    theirs = architecture_of(spec.model)
    return _plain_config(spec) if theirs is PLAIN else _config(spec, theirs)


def _plain_config(spec: RunSpec) -> dict[str, Any]:
    model = spec.model
    derived = {
        "kv_heads": model.key_value_heads,
        "head_size": model.features_per_head,
        "feed_forward": model.feed_forward_width,
    }
    return {
        "architectures": [PLAIN.architecture],
        "model_type": PLAIN.model_type,
        "vocab_size": spec.data.tokenizer.size,
        "max_position_embeddings": spec.batch.sequence_tokens,
        "model": used_fields(model) | derived,
        "dtype": _dtype_name(spec),
    }


def _dtype_name(spec: RunSpec) -> str:
    return str(DTYPES[spec.export_format]).removeprefix("torch.")


def _config(spec: RunSpec, theirs: HuggingFaceArchitecture) -> dict[str, Any]:
    model, dtype = spec.model, _dtype_name(spec)
    return {
        "architectures": [theirs.architecture],
        "model_type": theirs.model_type,
        "vocab_size": spec.data.tokenizer.size,
        "hidden_size": model.width,
        "intermediate_size": model.feed_forward_width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.key_value_heads,
        "head_dim": model.features_per_head,
        "hidden_act": {"swiglu": "silu"}.get(model.activation, "gelu_pytorch_tanh"),
        "max_position_embeddings": spec.batch.sequence_tokens,
        "rms_norm_eps": model.norm_epsilon,
        "tie_word_embeddings": model.tied_embeddings,
        "initializer_range": model.initializer_std,
        "dtype": dtype,
        "torch_dtype": dtype,
        OWN_KEY: model.model_dump(mode="json"),
    } | {**_rotary_config(model, PARTIAL in theirs.can_have), **theirs.settings(model)}


def _rotary_config(model: ModelSpec, may_be_partial: bool) -> dict[str, Any]:
    """Settings of rotary positions. `transformers` before 5 reads those outside of `rope_parameters`."""
    if model.positions == "learned":
        return {}
    theta: dict[str, Any] = {"rope_theta": model.rope_theta}
    scaling = {} if model.rope_scaling is None else model.rope_scaling.parameters
    factor = model.partial_rotary_factor
    partial = {"partial_rotary_factor": factor} if may_be_partial else {}
    older = ({"rope_scaling": scaling} if scaling else {}) | ({"rotary_pct": factor} if partial else {})
    return theta | {"rope_parameters": theta | {"rope_type": "default"} | scaling | partial} | partial | older


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"
