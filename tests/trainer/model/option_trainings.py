"""Small trainings of models with attention options, on one rank or two."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import one_step, start
from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.process.job_file import read_job

LENGTH = 16
FP32, FP8 = {"kind": "fp32"}, {"kind": "fp8", "fp8": {"level": "O2", "scaling": "tensor"}}


def build(spec: ModelSpec, end_of_text: int | None = None) -> Transformer:
    model = Transformer(spec, 64, LENGTH, end_of_text)
    initialize(model, spec.model_copy(update={"initializer_std": 0.3}), seed=1)
    return model


def loss_and_gradients(model: Transformer) -> list[Tensor]:
    """Token 0, which ends documents if there are any, is among the tokens."""
    tokens = torch.randint(0, 64, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    tokens[:, [2, 9]] = 0
    loss = model(tokens).square().mean()
    loss.backward()
    return [loss.detach(), *(weight.grad for weight in model.parameters() if weight.grad is not None)]


def learn(mesh: Mesh, job_file: Path, fault: Callable[[], None] | None = None) -> list[float]:
    if fault is not None:
        fault()
    training = start(mesh, job_file)
    steps = [one_step(training, number) for number in (1, 2, 3)]
    return [figure for step in steps for figure in (step.loss, step.grad_norm)]


def learned(
    folder: Path,
    data: Path,
    model: dict[str, Any],
    precision: dict[str, Any],
    fault: Callable[[], None] | None = None,
    batch: dict[str, Any] | None = None,
    **parallelism: int,
) -> list[float]:
    """Losses and norms of three steps on a rank, or on two with the given section."""
    ranks = 2 if parallelism else 1
    sections = {"model": model, "precision": precision, "parallelism": parallelism, "batch": batch or {}}
    job_file = write_job(folder / "-".join(["learned", *parallelism]), data, ranks, **sections)
    result, *others = on_mesh(read_job(job_file).spec.degrees, learn, job_file, fault)
    assert all(other == result for other in others)
    return result
