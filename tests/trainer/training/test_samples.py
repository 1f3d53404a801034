"""Samples are generated from each prompt in every layout, and training computes the same without them."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
import torch
import torch._inductor.config
from tokenizers import Tokenizer

from tests.trainer.jobs import build_here, events, losses, train_here, write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import BASE
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.rank_progress import RankActivity
from trainwright_trainer.checkpoint.snapshot import config_digest
from trainwright_trainer.data.token_shards import TokenStream
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build
from trainwright_trainer.training.loop import train

PROMPTS = ["the quick", "a", "lazy dog jumps over"]
GREEDY = {"prompts": PROMPTS, "sample_tokens": 6, "temperature": 0.0}
MODEL = {"width": 64, "kv_heads": 4}


class Trained(NamedTuple):
    """What one training reported."""

    texts: list[list[str]]
    """The sampled texts, by validation."""

    losses: list[float]


def spec(validation: dict[str, Any], **sections: Any) -> dict[str, Any]:
    own = {
        "schedule": {"steps": 4, "warmup_steps": 1},
        "validation": {"every_steps": 2, "sequences": 4} | validation,
        "model": MODEL,
    }
    return {name: BASE.get(name, {}) | own.get(name, {}) | sections.get(name, {}) for name in BASE | sections}


def reported(job_file: Path) -> Trained:
    texts = [[sample["text"] for sample in event["samples"]] for event in events(job_file, "samples")]
    return Trained(texts, losses(job_file))


def test_greedy_samples_are_the_most_likely_tokens(tmp_path: Path, data: Path) -> None:
    """Computed token by token without padding, as one would in a notebook."""
    training = build_here(write_job(tmp_path, data, **spec(GREEDY)))
    assert training.samples is not None
    written = training.samples.write(training.engine, step=2)
    tokenizer = Tokenizer.from_file(str(data / "tokenizer.json"))
    for prompt, sample in zip(PROMPTS, written, strict=True):
        ids = tokenizer.encode(prompt).ids
        length = len(ids)
        for _ in range(GREEDY["sample_tokens"]):
            with torch.no_grad():
                ids.append(int(training.engine.model(torch.tensor([ids[-32:]]))[0, -1].argmax()))
        assert (sample.prompt, sample.text) == (prompt, tokenizer.decode(ids[length:]))


def test_samples_can_be_longer_than_a_sequence(tmp_path: Path, data: Path) -> None:
    long = {"prompts": ["the river " * 10], "sample_tokens": 40, "temperature": 1.0}
    training = build_here(write_job(tmp_path, data, **spec(long)))
    assert training.samples is not None
    (sample,) = training.samples.write(training.engine, step=1)
    assert sample.text


@pytest.mark.slow(target="layouts")
def test_draws_are_functions_of_seed_step_and_prompt(tmp_path: Path, data: Path) -> None:
    drawn = {"prompts": [*PROMPTS, "the quick"], "sample_tokens": 12, "temperature": 1.0}
    training = build_here(write_job(tmp_path / "a", data, **spec(drawn)))
    fewer = build_here(write_job(tmp_path / "b", data, **spec(drawn | {"prompts": PROMPTS})))
    other = build_here(write_job(tmp_path / "c", data, seed=8, **spec(drawn)))

    def texts(training: Any, step: int) -> list[str]:
        return [sample.text for sample in training.samples.write(training.engine, step)]

    torch.rand(3)  # the generators of the training are not used
    first = texts(training, 2)
    assert first == texts(training, 2)
    assert first[:3] == texts(fewer, 2), "another prompt changes no other sample"
    assert first[0] != first[3], "equal prompts are sampled independently"
    assert first != texts(training, 4)
    assert first != texts(other, 2)


def test_a_run_with_samples_resumes_from_a_checkpoint_of_one_without(tmp_path: Path, data: Path) -> None:
    plain, sampled = (
        write_job(tmp_path / name, data, **spec(own)) for name, own in (("plain", {}), ("sampled", GREEDY))
    )
    assert config_digest(read_job(plain).spec) == config_digest(read_job(sampled).spec)


def test_samples_are_written_at_every_validation(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data, **spec(GREEDY))
    train_here(job_file)
    assert [event["step"] for event in events(job_file, "samples")] == [2, 4]


def test_writing_samples_is_not_a_step_in_the_rank_position(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds without validation data, where no validation precedes the samples."""
    training = build_here(write_job(tmp_path, data, **spec(GREEDY)))
    empty = replace(training, validation=cast(TokenStream, SimpleNamespace(sequences=0)))
    seen: list[object] = []
    monkeypatch.setattr(training.mesh.progress, "set_activity", seen.append)

    def write(engine: object, step: int) -> list[object]:
        seen.append("samples")
        return []

    monkeypatch.setattr(training.samples, "write", write)
    train(empty)
    assert [seen[at - 1] for at, what in enumerate(seen) if what == "samples"] == [
        RankActivity.VALIDATION
    ] * 2


FP8_O3 = {"kind": "fp8", "compile": "off", "fp8": {"level": "O3", "scaling": "tensor"}}
LAYOUTS: dict[str, dict[str, Any]] = {
    "data 2": {},
    "ZeRO 3": {"parallelism": {"zero_stage": 3}},
    "ZeRO 3, untied": {"parallelism": {"zero_stage": 3}, "model": {"tied_embeddings": False}},
    "tensor 2": {"parallelism": {"tensor": 2}},
    "tensor 2, chunks": {"parallelism": {"tensor": 2, "tensor_chunks": 2}},
    "pipeline 2": {"parallelism": {"pipeline": 2}},
    "FP8 O3": {"precision": FP8_O3},
    "FP8 O3, tensor 2": {"precision": FP8_O3, "parallelism": {"tensor": 2}},
    "DeepSpeed, ZeRO 3": {"parallelism": {"engine": "deepspeed", "zero_stage": 3}},
    "compiled": {"precision": {"kind": "fp32", "compile": "on"}},
}
VARIANTS: dict[str, dict[str, Any]] = {"with": GREEDY, "without": {}}


def _train_all(mesh: Mesh, jobs: list[Path]) -> None:
    torch._inductor.config.compile_threads = 1  # a rank's process may have no children
    for job_file in jobs:
        own = make_mesh(mesh.rank, read_job(job_file).spec.degrees, mesh.device)
        output_folder(job_file).mkdir(exist_ok=True)
        train(build(read_job(job_file), job_file, own))


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Trains a layout on two ranks, and its model on one, with and without prompts."""

    @cache
    def of(layout: str) -> dict[str, Trained]:
        folder = tmp_path_factory.mktemp("jobs")
        jobs = {
            name: write_job(folder / name, data, 2, **spec(own, **LAYOUTS[layout]))
            for name, own in VARIANTS.items()
        }
        on_mesh(Degrees(replicas=2), _train_all, list(jobs.values()))
        return {name: reported(job_file) for name, job_file in jobs.items()}

    return of


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_is_bitwise_the_same_with_and_without_samples(layout: str, trained: Any) -> None:
    of_layout = trained(layout)
    assert len(of_layout["with"].texts) == 2
    assert of_layout["with"].losses == of_layout["without"].losses


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_writes_what_one_process_writes(
    layout: str, trained: Any, data: Path, tmp_path: Path
) -> None:
    """Greedy samples after the same number of steps: the weights differ by rounding only."""
    sections = {name: own for name, own in LAYOUTS[layout].items() if name != "parallelism"}
    alone = write_job(tmp_path, data, **spec(GREEDY, **sections))
    train_here(alone)
    assert trained(layout)["with"].texts == reported(alone).texts


@pytest.mark.slow(target="layouts")
def test_samples_do_not_enter_the_history_of_fp8_layers(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training mode a layer records its largest input, from which later scales follow."""
    training = build_here(write_job(tmp_path, data, **spec(GREEDY, precision=FP8_O3)))
    writer, model = training.samples, training.engine.model
    assert writer is not None

    def seen() -> list[float]:
        return [float(amax) for name, amax in model.named_buffers() if name.endswith("amax")]

    writer.write(training.engine, step=1)
    assert seen() and not any(seen())
    monkeypatch.setattr(model, "eval", model.train)
    writer.write(training.engine, step=1)
    assert any(seen()), "negative control"
