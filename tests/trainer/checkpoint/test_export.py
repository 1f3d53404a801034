"""An export gives the same logits and tokens in `transformers`."""

import json
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tests.selection import partly_slow
from tests.trainer.jobs import read_out, resume_from, train_here, write_job
from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, digest_of
from trainwright.contracts.export_architecture import loaded_by
from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.checkpoint import export, plain_model
from trainwright_trainer.checkpoint.export import load_export
from trainwright_trainer.checkpoint.export_layout import name_in_llama
from trainwright_trainer.checkpoint.load import read_tensor, verify_files
from trainwright_trainer.checkpoint.save import Origin, Writer, save_checkpoint
from trainwright_trainer.checkpoint.snapshot import Snapshot, StateSlice, config_digest
from trainwright_trainer.main import main
from trainwright_trainer.model.rotary import rotary_table

SHAPES = {
    "tied, grouped": {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "tied_embeddings": True},
    "untied, grouped": {"layers": 2, "width": 32, "heads": 4, "kv_heads": 1, "tied_embeddings": False},
    "untied, full": {"layers": 1, "width": 32, "heads": 2, "kv_heads": None, "tied_embeddings": False},
    "windows": {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "sliding_window": 6},
    "windows in some layers": {
        "layers": 3,
        "width": 32,
        "heads": 4,
        "sliding_window": 6,
        "sliding_window_pattern": 2,
    },
    "norms of heads": {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "head_size": 16, "qk_norm": True},
    "biases of queries, keys and values": {"biases": "query_key_value", "kv_heads": 2},
    "all biases, geglu": {"biases": "all", "activation": "geglu"},
    "Gemma": {
        "width": 32,
        "heads": 4,
        "kv_heads": 1,
        "head_size": 16,
        "activation": "geglu",
        "embedding_multiplier": 32**0.5,
    },
    "multipliers": {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "biases": "all"},
    "GPT-2": {"positions": "learned", "activation": "gelu", "norm": "layer", "biases": "all", "kv_heads": 4},
    "GPT-NeoX": {
        "block": "parallel",
        "partial_rotary_factor": 0.5,
        "activation": "gelu",
        "norm": "layer",
        "biases": "all",
        "kv_heads": 4,
    },
    "SmolLM3": {"layers": 3, "no_rope_layer_interval": 2, "rope_scaling": {"factor": 4.0}},
    "odd sizes": {
        "layers": 2,
        "width": 42,
        "heads": 3,
        "kv_heads": 3,
        "head_size": 18,
        "feed_forward": 72,
        "rope_theta": 500.0,
        "norm_epsilon": 1e-3,
    },
}


CLASSES = {
    "windows": "MistralForCausalLM",
    "windows in some layers": "MinistralForCausalLM",
    "norms of heads": "Qwen3ForCausalLM",
    "biases of queries, keys and values": "Qwen2ForCausalLM",
    "Gemma": "GemmaForCausalLM",
    "multipliers": "GraniteForCausalLM",
    "GPT-2": "GPT2LMHeadModel",
    "GPT-NeoX": "GPTNeoXForCausalLM",
    "SmolLM3": "SmolLM3ForCausalLM",
}


@pytest.mark.parametrize(
    "which",
    partly_slow(SHAPES, ["untied, grouped", "odd sizes", "windows in some layers", "Gemma", "GPT-NeoX"]),
)
def test_transformers_computes_our_logits(tmp_path: Path, data: Path, which: str) -> None:
    """A learning rate high enough that a few steps make logits of the order of 1;
    float32 rounding is then near 1e-6."""
    job_file = write_job(
        tmp_path,
        data,
        model=SHAPES[which],
        schedule={"steps": 8, "warmup_steps": 1},
        optimizer={"learning_rate": 0.02},
    )
    training = train_here(job_file)
    assert main(["export", str(job_file)]) == 0
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out/export", dtype="auto")
    assert type(theirs).__name__ == CLASSES.get(which, "LlamaForCausalLM")
    assert next(theirs.parameters()).dtype == torch.float32
    tokens_BT = torch.randint(0, 257, (3, 32), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours_BTV = training.engine.model(tokens_BT)
        theirs_BTV = theirs(tokens_BT).logits
        reloaded_BTV = load_export(tmp_path / "out/export")[0](tokens_BT)
    assert ours_BTV.abs().max() > 0.5
    assert (ours_BTV - theirs_BTV).abs().max() <= 1e-4
    assert torch.equal(reloaded_BTV, ours_BTV)


def test_an_export_without_our_own_keys_is_read_as_a_llama(exported: Path, tmp_path: Path) -> None:
    """Older versions wrote exports like this."""
    older = shutil.copytree(exported / "out/export", tmp_path / "older")
    config = json.loads((older / "config.json").read_bytes())
    own = ModelSpec.model_validate(config.pop("trainwright"))
    (older / "config.json").write_text(json.dumps(config))
    model, _ = load_export(older)
    assert [block.attention.head_size for block in model.layers.values()] == [own.features_per_head] * 2
    weights = dict(load_export(exported / "out/export")[0].named_parameters())
    assert all(torch.equal(weight, weights[name]) for name, weight in model.named_parameters())


_READ = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import model
import torch
loaded = model.load(sys.argv[1])
assert not [name for name in sys.modules if name.startswith("trainwright")]
tokens = torch.tensor(json.loads(sys.argv[2]))
with torch.no_grad():
    logits = loaded(tokens)
pathlib.Path(sys.argv[3]).write_text(json.dumps([logits.tolist(), loaded.generate(tokens[0].tolist(), 5)]))
"""


def read_without_our_code(folder: Path, tokens_BT: torch.Tensor, out: Path) -> tuple[torch.Tensor, list[int]]:
    """Logits and a greedy continuation from the export's own ``model.py``, in a process without our code."""
    command = [sys.executable, "-c", _READ, str(folder), json.dumps(tokens_BT.tolist()), str(out)]
    subprocess.run(command, check=True, timeout=240, cwd=out.parent)
    logits, ids = json.loads(out.read_text())
    return torch.tensor(logits), ids


UNKNOWN: tuple[dict[str, Any], ...] = (
    {"block": "parallel"},
    {"block": "parallel", "sliding_window": 6, "sliding_window_pattern": 2},
    {"attention": "localized_filtering", "qk_norm": True},
    {"activation": "gelu", "norm": "layer", "biases": "all", "positions": "learned", "qk_norm": True},
    {
        "partial_rotary_factor": 0.5,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        "activation": "geglu",
        "norm": "layer_without_bias",
        "biases": "all",
        "block": "parallel",
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
    },
)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("model", UNKNOWN)
def test_a_model_unknown_to_transformers_comes_with_a_file_that_loads_it(
    tmp_path: Path, data: Path, model: dict[str, Any]
) -> None:
    job_file = write_job(
        tmp_path,
        data,
        model=model,
        schedule={"steps": 8, "warmup_steps": 1},
        optimizer={"learning_rate": 0.02},
    )
    training = train_here(job_file)
    assert main(["export", str(job_file)]) == 0
    folder = tmp_path / "out/export"
    assert loaded_by(training.spec.model).endswith("the file model.py that comes with it can.")
    manifest = CheckpointManifest.model_validate_json((folder / "manifest.json").read_bytes())
    verify_files(folder, manifest.files)
    tokens_BT = torch.randint(0, 257, (2, 16), generator=torch.Generator().manual_seed(0))
    logits_BTV, ids = read_without_our_code(folder, tokens_BT, tmp_path / "read.json")
    with torch.no_grad():
        ours_BTV = training.engine.model(tokens_BT)
        reloaded_BTV = load_export(folder)[0](tokens_BT)
    assert ours_BTV.abs().max() > 0.5
    assert (logits_BTV - ours_BTV).abs().max() <= 1e-4
    assert torch.equal(reloaded_BTV, ours_BTV)
    assert ids[:16] == tokens_BT[0].tolist() and ids[16] == int(ours_BTV[0, -1].argmax())


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("block", ["serial", "parallel"])
def test_large_exports_are_several_files_with_an_index(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, block: str
) -> None:
    """A file has at most 8,192 bytes, unless a single weight is larger. At most two weights are in memory at a time."""
    job_file = write_job(tmp_path, data, model={"block": block}, schedule={"steps": 2, "warmup_steps": 1})
    training = train_here(job_file)
    monkeypatch.setattr(export, "FILE_BYTES", 8_192)
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def read(*given: Any) -> torch.Tensor:
        nonlocal most
        most = max(most, sum(each() is not None for each in alive))
        tensor = read_tensor(*given)
        alive.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(export, "read_tensor", read)
    assert main(["export", str(job_file)]) == 0
    assert len(alive) == len(list(training.engine.model.parameters())) and most <= 2
    folder = tmp_path / "out/export"
    files = sorted(folder.glob("*.safetensors"))
    index = json.loads((folder / "model.safetensors.index.json").read_bytes())
    assert len(files) > 2 and set(index["weight_map"].values()) == {path.name for path in files}
    assert all(path.stat().st_size <= 9_216 or len(safe_names(path)) == 1 for path in files)
    reloaded, _ = load_export(folder)
    for name, weight in training.engine.model.named_parameters():
        assert torch.equal(reloaded.get_parameter(name), weight), name
    if block == "serial":
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
        for name, weight in training.engine.model.named_parameters():
            assert torch.equal(theirs.get_parameter(name_in_llama(name)), weight), name
    else:
        plain = dict(plain_model.load(folder).named_parameters())
        assert all(
            torch.equal(plain[name], weight) for name, weight in training.engine.model.named_parameters()
        )


def safe_names(path: Path) -> list[str]:
    with safe_open(path, "pt") as file:
        return list(file.keys())


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"some_later_option": 1}, r"does not know some_later_option: use the model\.py"),
        (
            {"attention": "no-such"},
            r"model\.attention is no-such, but .* only full, localized_filtering: use",
        ),
        ({"block": "sandwich"}, r"model\.block is sandwich"),
        ({"activation": "relu"}, r"model\.activation is relu"),
        ({"norm": "batch"}, r"model\.norm is batch"),
        ({"biases": "some"}, r"model\.biases is some"),
        ({"positions": "alibi"}, r"model\.positions is alibi"),
        (
            {"rope_scaling": {"rope_type": "linear"}},
            r"model\.rope_scaling\.rope_type is linear, but .* llama3, yarn",
        ),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_the_model_file_of_an_export_refuses_what_it_does_not_compute(
    option: dict[str, Any], says: str
) -> None:
    known = {"layers": 1, "width": 8, "heads": 1, "kv_heads": 1, "head_size": 8, "feed_forward": 8}
    scalars = {"rope_theta": 1e4, "norm_epsilon": 1e-5, "tied_embeddings": True, "rope_scaling": None}
    plain_model.Model(known | scalars, 8, 8)
    with pytest.raises(ValueError, match=says):
        plain_model.Model(known | scalars | option, 8, 8)


@pytest.mark.parametrize(
    "sections",
    [{"checkpoint": {"export_dtype": "bf16"}}, {"precision": {"kind": "bf16"}}],
    ids=["bf16", "auto"],
)
def test_an_export_in_bf16_is_the_trained_weights_rounded_once(
    tmp_path: Path, data: Path, sections: dict[str, Any]
) -> None:
    job_file = write_job(tmp_path, data, schedule={"steps": 5}, **sections)
    training = train_here(job_file)
    assert main(["export", str(job_file)]) == 0
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out/export", dtype="auto")
    reloaded, _ = load_export(tmp_path / "out/export")
    assert theirs.dtype == torch.bfloat16
    for name, weight in training.engine.model.named_parameters():
        exported = theirs.get_parameter(name_in_llama(name))
        assert exported.dtype == torch.bfloat16
        assert torch.equal(exported, weight.bfloat16()), name
        assert torch.equal(reloaded.get_parameter(name), weight.bfloat16().float()), name


def test_quantized_weights_are_exported_as_real_numbers(tmp_path: Path, data: Path) -> None:
    """The last checkpoint is rewritten with float16 codes and a scale,
    whose product float32 represents exactly."""
    job_file = write_job(tmp_path, data, schedule={"steps": 5}, checkpoint={"export_dtype": "fp32"})
    training = train_here(job_file)
    weights = dict(training.engine.model.named_parameters())
    pieces = [piece for name, weight in weights.items() for piece in _quantized(f"model.{name}", weight)]
    origin = Origin(config_digest(training.spec), 1, None)
    writer = Writer(rank=0, on_node=range(1), nonce="again")
    save_checkpoint(tmp_path / "out/checkpoints", Snapshot(5, pieces, {"step": 5}), origin, writer)
    assert main(["export", str(job_file)]) == 0
    reloaded, _ = load_export(tmp_path / "out/export")
    for name, weight in weights.items():
        assert torch.equal(reloaded.get_parameter(name), (weight * 512).half().float() / 512), name


def _quantized(name: str, weight: torch.Tensor) -> list[StateSlice]:
    codes, scale = (weight.detach() * 512).half(), torch.tensor(1 / 512)
    return [
        StateSlice(name, tuple(codes.shape), (0,) * codes.ndim, codes, f"{name}.scale"),
        StateSlice(f"{name}.scale", (), (), scale, None),
    ]


@pytest.mark.parametrize(("head_size", "theta"), [(64, 10_000.0), (128, 500_000.0), (18, 500.0)])
def test_rotary_tables_of_far_positions_are_equal_bit_for_bit(head_size: int, theta: float) -> None:
    """The last bit of a frequency is 1e-4 of an angle at position 2,048, and grows with the position."""
    rope = {"rope_type": "default", "rope_theta": theta}
    config = LlamaConfig(hidden_size=head_size, num_attention_heads=1, rope_parameters=rope)
    theirs = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(2_048)[None])
    ours = rotary_table(2_048, head_size, theta)
    assert all(torch.equal(mine, other[0]) for mine, other in zip(ours, theirs, strict=True))


@pytest.fixture(scope="module")
def exported(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    job_file = write_job(folder, data)
    train_here(job_file)
    assert main(["export", str(job_file)]) == 0
    return folder


def test_an_export_contains_the_tokenizer(exported: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(exported / "out/export")
    text = "Zwölf Boxkämpfer – 12 \U0001f98a\n\tjagen"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.eos_token_id == 256
    assert len(tokenizer) == 257


def test_the_manifest_of_an_export_names_its_files_and_its_origin(exported: Path) -> None:
    folder = exported / "out/export"
    manifest = CheckpointManifest.model_validate_json((folder / "manifest.json").read_bytes())
    assert manifest.kind is CheckpointKind.EXPORT
    assert manifest.step == 20
    assert manifest.parent_digest == digest_of(
        (exported / "out/checkpoints/step-20/manifest.json").read_bytes()
    )
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        *(entry.name for entry in manifest.files),
    }
    verify_files(folder, manifest.files)
    assert read_out(exported / "job.json", "outcome.json")["code"] == "finished"


def test_an_export_is_idempotent_and_can_start_from_the_resume_folder(
    exported: Path, tmp_path: Path, data: Path
) -> None:
    assert main(["export", str(exported / "job.json")]) == 0
    point = resume_from(exported / "out/checkpoints/step-20", tmp_path)
    again = write_job(tmp_path, data, job=point | {"kind": "export"})
    assert main(["export", str(again)]) == 0
    for path in (exported / "out/export").iterdir():
        assert (tmp_path / "out/export" / path.name).read_bytes() == path.read_bytes()
    assert [path.name for path in (tmp_path / "out").iterdir() if "export" in path.name] == ["export"]


def test_only_the_last_step_is_exported(tmp_path: Path, data: Path, exported: Path) -> None:
    point = resume_from(exported / "out/checkpoints/step-10", tmp_path)
    job_file = write_job(tmp_path, data, job=point)
    assert main(["export", str(job_file)]) == 1
    assert read_out(job_file, "failure-0.json")["code"] == "bad_job"


def test_sampling_repeats_for_a_seed(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for seed in (1, 1, 2):
        given = ["--prompt", "the fox", "--tokens", "40", "--temperature", "1.0", "--seed", str(seed)]
        assert main(["sample", str(exported / "out/export"), *given]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0].startswith("the fox")
    assert outputs[0] == outputs[1] != outputs[2]
