"""Exports: the weights of a checkpoint in the layout of Hugging Face's models, with the tokenizer.

Rotary features are already in that layout's order, so exporting only renames tensors; the same table in reverse loads
an export for sampling. If `transformers` has no class for a model (``contracts.export_architecture``), its export has our
names and a copy of ``plain_model``, which loads it without our packages. We never run that copy. Exported weights are
real numbers in float32, or rounded to bfloat16 for half the size. Weights are read and written one by one, in files of
at most 4 GiB.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from trainwright.contracts.block_parts import weight_in_block
from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, FileEntry
from trainwright.contracts.export_architecture import PLAIN, PLAIN_FILE, architecture_of
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.token_shards import TOKENIZER_NAME, ShardManifest
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
_OUTER_NAMES = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}


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
    is_plain = config["model_type"] == PLAIN.model_type
    named = str if is_plain else hugging_face_name
    offset = 0.0 if is_plain else architecture_of(spec).norm_offset
    own = {name: weights[named(name)] for name, _ in model.named_parameters()}
    model.load_state_dict(
        {name: weight.float() + offset if weight.ndim == 1 else weight for name, weight in own.items()},
        strict=False,
    )
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


def hugging_face_name(name: str) -> str:
    """The name of one of our weights in Hugging Face's layout."""
    weight = weight_in_block(name)
    if weight is None:
        module, _, kind = name.rpartition(".")
        return f"{_OUTER_NAMES[module]}.{kind}"
    return f"model.layers.{name.split('.')[1]}.{weight.exported_as}"


def _write_weights(
    folder: Path, checkpoint: Path, manifest: CheckpointManifest, spec: RunSpec
) -> list[FileEntry]:
    """Write one weight after the other, so that only the largest must fit into memory; several files get an index."""
    with torch.device("meta"):
        model = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    dtype = DTYPES[spec.checkpoint.export_dtype]
    theirs = architecture_of(spec.model)
    renamed, offset = str if theirs is PLAIN else hugging_face_name, theirs.norm_offset
    ours = {renamed(name): name for name, _ in model.named_parameters()}
    shapes = {
        renamed(name): TensorShape(dtype, tuple(weight.shape)) for name, weight in model.named_parameters()
    }

    def read(name: str) -> Tensor:
        weight = read_tensor(checkpoint, manifest, f"model.{ours[name]}", shapes[name].shape)
        return (weight - offset if weight.ndim == 1 else weight).to(dtype)

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
        "config.json": _json((_plain_config(spec) if plain else _config(spec)) | ends),
        "generation_config.json": _json(ends),
        TOKENIZER_NAME: tokenizer,
        "tokenizer_config.json": _json(settings),
        "special_tokens_map.json": _json(special),
    }


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
    return str(DTYPES[spec.checkpoint.export_dtype]).removeprefix("torch.")


def _config(spec: RunSpec) -> dict[str, Any]:
    model, theirs, dtype = spec.model, architecture_of(spec.model), _dtype_name(spec)
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
        # transformers before 5 reads the first spelling, later releases the second.
        "rope_theta": model.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
        "tie_word_embeddings": model.tied_embeddings,
        "initializer_range": model.initializer_std,
        "attention_bias": model.biases == "all",
        "mlp_bias": model.biases == "all",
        "dtype": dtype,
        "torch_dtype": dtype,
        OWN_KEY: model.model_dump(mode="json"),
    } | {key: getattr(model, field) for key, field in theirs.settings.items()}


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"
