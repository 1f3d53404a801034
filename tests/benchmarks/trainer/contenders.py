"""Contenders that train: our trainer, loops as one would write them in a notebook, and other trainers.

All train the same network, ``Transformer`` with the same initial weights, so that only the loop around it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from tests.benchmarks.harness.interleave import Pacer, Request
from tests.benchmarks.trainer.timed_training import build_job, write_job
from trainwright.contracts.events import Step, TrainerEvent
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.training.loop import train

_CLIP_NORM = 1.0
_LEARNING_RATE = 3e-4


def ours(request: Request, pacer: Pacer) -> None:
    """A job folder, ``build`` and ``train``, with events; a step ends when it has been reported."""
    torch.set_num_threads(request.threads)
    rare = {"every_steps": request.steps}
    precision = request.options or {"kind": "fp32"}
    training = build_job(
        write_job(
            request.folder,
            request.shape,
            request.steps,
            validation=rare,
            checkpoint=rare,
            precision=precision,
        )
    )
    report = training.report

    def paced(event: TrainerEvent) -> None:
        report(event)
        if isinstance(event, Step):
            pacer.step_done()

    training.report = paced
    pacer.start()
    train(training)


def bare(request: Request, pacer: Pacer) -> None:
    """Only the steps, in float32: batches are ready in memory, and nothing is reported."""
    torch.set_num_threads(request.threads)
    model = _model(request)
    _bare_steps(request, model, lambda rows: _loss(model, rows), pacer)


def bare_bf16_compiled(request: Request, pacer: Pacer) -> None:
    """The same under autocast to bfloat16, with model and loss compiled together."""
    torch.set_num_threads(request.threads)
    model = _model(request)

    def loss(rows: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return _loss(model, rows)

    # Compiling takes half a minute and needs a compiler, so toys do without.
    compiled = torch.compile(loss, dynamic=False) if request.options.get("compile") == "on" else loss
    _bare_steps(request, model, compiled, pacer)


def _bare_steps(
    request: Request, model: Transformer, loss_of: Callable[[Tensor], Tensor], pacer: Pacer
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, fused=True)
    rounds = request.shape.rounds
    pacer.start()
    for rows in _global_batches(request):
        optimizer.zero_grad(set_to_none=True)
        for micro in rows.chunk(rounds):
            (loss_of(micro) / rounds).backward()
        nn.utils.clip_grad_norm_(model.parameters(), _CLIP_NORM)
        optimizer.step()
        pacer.step_done()


def hf_trainer(request: Request, pacer: Pacer) -> None:
    """`transformers.Trainer` over the same network, without logs, checkpoints or a progress bar."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    torch.set_num_threads(request.threads)

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = _model(request)

        def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = self.inner(input_ids)
            return {"loss": cross_entropy(logits.flatten(0, 1), labels.flatten())}

    class Clock(TrainerCallback):
        def on_train_begin(self, *_: object, **__: object) -> None:
            pacer.start()

        def on_step_end(self, *_: object, **__: object) -> None:
            pacer.step_done()

    arguments = TrainingArguments(
        output_dir=str(request.folder),
        max_steps=request.steps,
        per_device_train_batch_size=request.batch.micro_sequences,
        gradient_accumulation_steps=request.shape.rounds,
        optim="adamw_torch_fused",
        learning_rate=_LEARNING_RATE,
        max_grad_norm=_CLIP_NORM,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(model=Wrapped(), args=arguments, train_dataset=_Rows(request), callbacks=[Clock()]).train()


class _Rows(Dataset[dict[str, Tensor]]):
    """The sequences of all steps, made on demand."""

    def __init__(self, request: Request) -> None:
        self._count = request.steps * request.batch.global_sequences
        draw = torch.Generator().manual_seed(0)
        size = (4_096, request.batch.sequence_tokens + 1)
        self._rows = torch.randint(request.vocabulary, size, generator=draw)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        row = self._rows[index % len(self._rows)]
        return {"input_ids": row[:-1], "labels": row[1:]}


def _model(request: Request) -> Transformer:
    model = Transformer(request.model, request.vocabulary, request.batch.sequence_tokens)
    initialize(model, request.model, 0)
    return model


def _loss(model: Transformer, rows: Tensor) -> Tensor:
    return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def _global_batches(request: Request) -> Iterator[Tensor]:
    """(G, T + 1) for each step: a hundred different batches, repeated."""
    draw = torch.Generator().manual_seed(0)
    size: Any = (min(request.steps, 100), request.batch.global_sequences, request.batch.sequence_tokens + 1)
    rows = torch.randint(request.vocabulary, size, generator=draw)
    for step in range(request.steps):
        yield rows[step % len(rows)]
