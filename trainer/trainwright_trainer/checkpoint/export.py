"""Exports: the weights of a checkpoint in the layout of Hugging Face's models, with the tokenizer.

Rotary features are already in that layout's order, so exporting only renames tensors; the same table in
reverse loads an export for sampling. Exported weights are real numbers in float32, or rounded to bfloat16 for
half the size.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from trainwright.contracts.block_parts import attention_of, weight_in_block
from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.shards import TOKENIZER_NAME, ShardManifest
from trainwright_trainer.checkpoint.load import read_tensor, verify_files
from trainwright_trainer.checkpoint.save import code_version, replace_folder, write_manifest
from trainwright_trainer.checkpoint.tensor_files import write_hashed, write_tensors
from trainwright_trainer.data.shards import read_manifest
from trainwright_trainer.model.transformer import Transformer

WEIGHTS_NAME = "model.safetensors"
OWN_KEY = "trainwright"
"""In `config.json`: the model in our own words, which loads an export of any architecture. `transformers` ignores it."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_OUTER_NAMES = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}


def export(
    checkpoint: Path, manifest: CheckpointManifest, digest: str, data: Path, spec: RunSpec, out: Path
) -> str:
    """Write the export of ``checkpoint`` to the folder ``out``; returns the digest of its manifest.

    Raises:
        CheckpointInvalidError: a file does not match ``manifest``.
    """
    verify_files(checkpoint, manifest.files)
    model = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    draft = out.with_name(f"{out.name}.tmp-{uuid4().hex[:12]}")
    draft.mkdir(parents=True)
    weights = _renamed_weights(checkpoint, manifest, model, DTYPES[spec.checkpoint.export_dtype])
    files = [write_tensors(draft / WEIGHTS_NAME, weights)]
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
    model = Transformer(_model_spec(config), config["vocab_size"], config["max_position_embeddings"])
    weights = load_file(folder / WEIGHTS_NAME)
    model.load_state_dict(
        {name: weights[hugging_face_name(name)] for name, _ in model.named_parameters()}, strict=False
    )
    return model, Tokenizer.from_file(str(folder / TOKENIZER_NAME))


def _model_spec(config: dict[str, Any]) -> ModelSpec:
    if OWN_KEY in config:
        return ModelSpec.model_validate(config[OWN_KEY])
    return ModelSpec.model_validate(  # exports from before there were options, all of them Llama's
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


def _renamed_weights(
    checkpoint: Path, manifest: CheckpointManifest, model: nn.Module, dtype: torch.dtype
) -> dict[str, Tensor]:
    return {
        hugging_face_name(name): read_tensor(checkpoint, manifest, f"model.{name}", weight.shape).to(dtype)
        for name, weight in model.named_parameters()
    }


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
    return {
        "config.json": _json(_config(spec) | ends),
        "generation_config.json": _json(ends),
        TOKENIZER_NAME: tokenizer,
        "tokenizer_config.json": _json(settings),
        "special_tokens_map.json": _json(special),
    }


def _config(spec: RunSpec) -> dict[str, Any]:
    model, theirs = spec.model, attention_of(spec.model).hugging_face(spec.model)
    dtype = str(DTYPES[spec.checkpoint.export_dtype]).removeprefix("torch.")
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
        "hidden_act": "silu",
        "max_position_embeddings": spec.batch.sequence_tokens,
        "rms_norm_eps": model.norm_epsilon,
        # transformers before 5 reads the first spelling, later releases the second.
        "rope_theta": model.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
        "tie_word_embeddings": model.tied_embeddings,
        "initializer_range": model.initializer_std,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": dtype,
        "torch_dtype": dtype,
        OWN_KEY: model.model_dump(mode="json"),
    } | {key: getattr(model, field) for key, field in theirs.settings.items()}


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"
