"""Ours compared with other trainers: the same shape, batch and tokens, in fresh processes, in the order A-B-B-A.

    python -m tests.benchmarks.trainer.peer_trainers NAME REQUEST_JSON     run one trainer; print its step seconds as JSON

Each trainer is used as its documentation shows: its own model, loop and optimizer, with compilation, without recomputation,
with clipping at 1 and float32 weights. If a trainer is not installed, the row is refused with the command that installs
it. None of them is a dependency.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from tests.benchmarks.report.results import Figure, RefusedError
from tests.benchmarks.trainer.gemm_ceilings import synchronize
from tests.benchmarks.trainer.timed_training import Shape, build_job, device, learn, write_job
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import BatchSpec

OURS = "ours"
PACKAGES = {
    "torchtitan": {"torchtitan": "torchtitan==0.2.2"},
    "torchtitan-fp8": {"torchtitan": "torchtitan==0.2.2", "torchao": "torchao"},
    "hf-trainer": {"transformers": "transformers", "accelerate": "accelerate"},
    "torchao": {"torchao": "torchao"},
}
"""Modules that each trainer needs, with their pip requirements."""


class Request(BaseModel):
    """What one process measures."""

    model: ModelSpec
    vocabulary: int
    batch: BatchSpec
    warm_up: int
    timed: int
    folder: Path

    @property
    def shape(self) -> Shape:
        return Shape(self.model, self.vocabulary, self.batch)

    @property
    def steps(self) -> int:
        return self.warm_up + self.timed


def check_installed(name: str) -> None:
    """Raises:
    RefusedError: a package of trainer ``name`` is missing.
    """
    missing = [package for module, package in PACKAGES[name].items() if find_spec(module) is None]
    if missing:
        raise RefusedError(f"not installed: pip install {' '.join(missing)}")
    if name.startswith("torchtitan") and device().type != "cuda":
        raise RefusedError("torchtitan trains on GPUs only, and there is none here")


def compare_with_peer(
    name: str, precision: str, shape: Shape, steps: tuple[int, int], folder: Path
) -> dict[str, Figure]:
    """Median step of FP8 (O2) and of trainer ``name``, and the ratio of their rates."""
    check_installed(name)
    seconds: dict[str, list[float]] = {OURS: [], name: []}
    for turn, who in enumerate((OURS, name, name, OURS)):
        request = Request(
            model=shape.model,
            vocabulary=shape.vocabulary,
            batch=shape.batch,
            warm_up=steps[0],
            timed=steps[1],
            folder=folder / f"{turn}-{who}",
        )
        seconds[who] += steps_in_a_process(who, request)
    ours, theirs = (shape.tokens_per_step / median(seconds[who]) for who in (OURS, name))
    return {
        "peer_precision": precision,
        "parameters": shape.parameters,
        "tokens_per_step": shape.tokens_per_step,
        "fp8_tokens_per_second": ours,
        "peer_tokens_per_second": theirs,
        "ratio": ours / theirs,
    }


def steps_in_a_process(who: str, request: Request) -> list[float]:
    """Seconds of the timed steps, measured in a new process."""
    command = [sys.executable, "-m", "tests.benchmarks.trainer.peer_trainers", who, request.model_dump_json()]
    # At toy size one thread is enough; more only wait for each other.
    threads = {} if device().type == "cuda" else {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | threads)
    if done.returncode:
        raise RuntimeError(f"{who} ended with code {done.returncode}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{who}: {request.shape.tokens_per_step / median(seconds):,.0f} tokens/s", flush=True)
    return seconds


def _ours(request: Request) -> list[float]:
    return _of_our_steps(request, {"kind": "fp8", "fp8": {"level": "O2"}})


def _torchao(request: Request) -> list[float]:
    """Our bfloat16 training with torchao's layers in the blocks, which compile at their first call."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = Float8LinearConfig(emulate=device().type != "cuda")
    return _of_our_steps(
        request, {"kind": "bf16"}, lambda layers: convert_to_float8_training(layers, config=config)
    )


def _of_our_steps(
    request: Request, precision: dict[str, Any], convert: Callable[[torch.nn.Module], object] | None = None
) -> list[float]:
    training = build_job(write_job(request.folder, request.shape, request.steps, precision=precision))
    if convert is not None:
        convert(training.engine.model.layers)
    return [step["seconds"] for step in learn(training, request.steps)]


def _hf_trainer(request: Request) -> list[float]:
    """`transformers.Trainer` over its own Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    on_gpu = device().type == "cuda"
    model, batch = request.model, request.batch
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=request.vocabulary,
            hidden_size=model.width,
            intermediate_size=model.feed_forward_width,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            num_key_value_heads=model.key_value_heads,
            max_position_embeddings=batch.sequence_tokens,
            tie_word_embeddings=model.tied_embeddings,
            use_cache=False,
        )
    )
    rows = _random_rows(request)

    class Clock(TrainerCallback):
        marks: list[float] = []

        def on_step_begin(self, *_: object, **__: object) -> None:
            synchronize()
            self.marks.append(time.perf_counter())

        def on_step_end(self, *_: object, **__: object) -> None:
            synchronize()
            self.marks.append(time.perf_counter())

    arguments = TrainingArguments(
        output_dir=str(request.folder),
        max_steps=request.steps,
        per_device_train_batch_size=batch.micro_sequences,
        gradient_accumulation_steps=batch.global_sequences // batch.micro_sequences,
        bf16=True,
        torch_compile=on_gpu,
        optim="adamw_torch_fused",
        learning_rate=3e-4,
        max_grad_norm=1.0,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        use_cpu=not on_gpu,
        disable_tqdm=True,
    )
    data = [{"input_ids": row[:-1], "labels": row[:-1]} for row in rows]
    clock = Clock()
    Trainer(model=llama, args=arguments, train_dataset=data, callbacks=[clock]).train()
    marks = clock.marks
    return [after - before for before, after in zip(marks[::2], marks[1::2], strict=True)]


def _torchtitan(request: Request, converters: tuple[str, ...] = ()) -> list[float]:
    """torchtitan's trainer over its Llama 3, blocks and loss compiled, on one GPU: nothing is sharded."""
    for name, value in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1), ("MASTER_PORT", 29_555)):
        os.environ.setdefault(name, str(value))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    from dataclasses import replace

    from torchtitan.config import JobConfig
    from torchtitan.models import llama3
    from torchtitan.protocols.train_spec import register_train_spec
    from torchtitan.train import Trainer

    model, batch = request.model, request.batch
    arguments = llama3.TransformerModelArgs(
        dim=model.width,
        n_layers=model.layers,
        n_heads=model.heads,
        n_kv_heads=model.key_value_heads,
        vocab_size=request.vocabulary,
        # Its hidden size is 8/3 of the width, times this, rounded up to the multiple.
        ffn_dim_multiplier=(model.feed_forward_width - 64) / (8 * model.width / 3),
        multiple_of=128,
        rope_theta=model.rope_theta,
    )
    spec = replace(
        llama3.get_train_spec(),
        model_args={"shape": arguments},
        build_tokenizer_fn=None,
        build_dataloader_fn=lambda **_: None,
        state_dict_adapter=None,
    )
    register_train_spec("benchmark", spec)
    config = JobConfig()
    config.job.dump_folder = str(request.folder)
    config.model.name, config.model.flavor = "benchmark", "shape"
    config.model.converters = list(converters)
    config.quantize.linear.float8.filter_fqns = ["output"]
    config.training.seq_len = batch.sequence_tokens
    config.training.local_batch_size = batch.micro_sequences
    config.training.global_batch_size = batch.global_sequences
    config.training.steps = request.steps
    config.lr_scheduler.warmup_steps = 2
    config.optimizer.lr = 3e-4
    config.activation_checkpoint.mode = "none"
    config.compile.enable = True
    trainer = Trainer(config)
    hidden = trainer.model_parts[0].layers["0"].feed_forward.w1.weight.shape[0]
    assert hidden == model.feed_forward_width, (
        f"torchtitan made {hidden} hidden features of {model.feed_forward_width}"
    )
    batches = trainer.batch_generator(_titan_batches(request))
    seconds = []
    for step in range(1, request.steps + 1):
        trainer.step = step
        synchronize()
        began = time.perf_counter()
        trainer.train_step(batches)
        synchronize()
        seconds.append(time.perf_counter() - began)
    trainer.close()
    return seconds


def _titan_batches(request: Request) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    for rows in _random_rows(request).split(request.batch.micro_sequences):
        yield {"input": rows[:, :-1]}, rows[:, 1:].contiguous()


def _random_rows(request: Request) -> Tensor:
    """(sequences of all steps, T + 1) int64."""
    draw = torch.Generator().manual_seed(0)
    count = request.steps * request.batch.global_sequences
    return torch.randint(request.vocabulary, (count, request.batch.sequence_tokens + 1), generator=draw)


_RUN: dict[str, Callable[[Request], list[float]]] = {
    OURS: _ours,
    "torchao": _torchao,
    "hf-trainer": _hf_trainer,
    "torchtitan": _torchtitan,
    "torchtitan-fp8": lambda request: _torchtitan(request, ("quantize.linear.float8",)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("who", choices=_RUN)
    parser.add_argument("request", type=Request.model_validate_json)
    given = parser.parse_args()
    seconds = _RUN[given.who](given.request)
    print(json.dumps(seconds[given.request.warm_up :]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
