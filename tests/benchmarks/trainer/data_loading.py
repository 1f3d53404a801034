"""Tokens per second on one core: our loader, the shortest code that reads a memory map, and torch's DataLoader.

Every contender reads the same file of 16-bit ids in random order and makes batches of 64-bit ids, as embeddings and losses
need them.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tests.benchmarks.harness.interleave import Contender, Pacer, Request, in_turn
from tests.benchmarks.report.entries import Entry, at_least, at_most
from tests.benchmarks.trainer.node_loading import node_loader
from tests.benchmarks.trainer.shapes import TOY
from tests.benchmarks.trainer.step_time import LONG
from tests.benchmarks.trainer.timed_training import Shape, build_job, learn, write_job, write_tokens
from trainwright.contracts.training_spec import BatchSpec
from trainwright_trainer.data.loader import Loader
from trainwright_trainer.data.token_shards import TokenStream, read_manifest

_TOKENS_PER_SECOND = 500e6
"""Tokens per second on one core."""

_SHARE = 0.005
"""Upper bound on the fraction of a step."""

_BATCH = BatchSpec(sequence_tokens=2_048, micro_sequences=8, global_sequences=64)


def loader(toy: bool, folder: Path) -> dict[str, Entry]:
    """Tokens per second of all three, the loader's share of a real step, and the figures of a node with several ranks."""
    shape = TOY if toy else Shape(TOY.model, 4_096, _BATCH)
    write_tokens(folder / "tokens", shape.vocabulary, 2**16 if toy else 2**26)
    request = Request(
        folder=folder / "loader",
        model=shape.model,
        vocabulary=shape.vocabulary,
        batch=shape.batch,
        steps=10_000,
        threads=1,
    )
    contenders = {
        name: Contender("tests.benchmarks.trainer.data_loading", name)
        for name in ("ours", "memmap", "dataloader")
    }
    where = {"tokens": str(folder / "tokens")}
    spent = in_turn(
        contenders,
        request,
        warm_up=2 if toy else 50,
        rounds=2 if toy else 20,
        steps=5 if toy else 20,
        options=dict.fromkeys(contenders, where),
    )
    rates = {name: shape.tokens_per_step / one.cpu_median() for name, one in spent.items()}
    bound = _TOKENS_PER_SECOND / rates["memmap"]
    return {
        "loader": at_least(rates["ours"], rates["memmap"], "tokens/s a core", bound, bound),
        "loader-dataloader": at_least(rates["ours"], rates["dataloader"], "tokens/s a core", 1.0, 1.0),
        "loader-share": _share(TOY if toy else LONG, folder / "share", toy),
        **node_loader(toy, folder),
    }


def _share(shape: Shape, folder: Path, toy: bool) -> Entry:
    """Seconds that a training spends on `data`, compared with its full step."""
    torch.set_num_threads(1)
    warm_up, timed = (1, 2) if toy else (5, 30)
    job = write_job(folder, shape, warm_up + timed, precision={"kind": "fp32"})
    measured = learn(build_job(job), warm_up + timed)[warm_up:]
    data, whole = (median(step[name] for step in measured) for name in ("data_seconds", "seconds"))
    return at_most(data, whole, "s a step", _SHARE, _SHARE)


def ours(request: Request, pacer: Pacer) -> None:
    folder = Path(request.options["tokens"])
    manifest = read_manifest(folder)
    stream = TokenStream(folder, manifest.train, manifest.token_type, request.batch.sequence_tokens)
    batches = Loader(stream, request.batch, seed=0, rank=0, ranks=1)
    pacer.start()
    for step in range(1, request.steps + 1):
        for batch in batches.micro_batches(step):
            batch.to(torch.device("cpu"))
        pacer.step_done()


def memmap(request: Request, pacer: Pacer) -> None:
    """As in nanoGPT."""
    tokens, length = _mapped(request), request.batch.sequence_tokens
    draw = np.random.default_rng(0)
    pacer.start()
    for _ in range(request.steps):
        for _ in range(request.shape.rounds):
            starts = draw.integers(0, len(tokens) - length - 1, request.batch.micro_sequences)
            torch.from_numpy(np.stack([tokens[at : at + length + 1].astype(np.int64) for at in starts]))
        pacer.step_done()


def dataloader(request: Request, pacer: Pacer) -> None:
    """Without worker processes, which would add cores and copies."""
    batches = DataLoader(_Sequences(request), batch_size=request.batch.micro_sequences, shuffle=True)
    made = 0
    pacer.start()
    while True:
        for _ in batches:
            made += 1
            if made % request.shape.rounds == 0:
                pacer.step_done()


class _Sequences(Dataset[Tensor]):
    def __init__(self, request: Request) -> None:
        self._tokens, self._length = _mapped(request), request.batch.sequence_tokens

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._length

    def __getitem__(self, index: int) -> Tensor:
        start = index * self._length
        return torch.from_numpy(self._tokens[start : start + self._length + 1].astype(np.int64))


def _mapped(request: Request) -> np.ndarray[Any, Any]:
    return np.memmap(Path(request.options["tokens"]) / "train-00000.bin", dtype="<u2", mode="r")
