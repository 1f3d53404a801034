"""Data shared by the trainer's tests:
one small preparation, run once per session by the trainer's own command."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._functorch.config

from trainwright_trainer.main import main

WORDS = [
    "the",
    "a",
    "slow",
    "quick",
    "brown",
    "lazy",
    "fox",
    "dog",
    "jumps",
    "runs",
    "over",
    "under",
    "river",
    "hill",
    "and",
    "then",
    "sees",
    "nothing",
    "at",
    "all",
]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """Discard what earlier tests compiled, since torch limits the compilations of one function in a process,
    and what this test changes for FP8 (``recompute_operands``).
    """
    torch._dynamo.reset()
    with torch._functorch.config.patch(
        ban_recompute_used_far_apart=True, ban_recompute_materialized_backward=True
    ):
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of byte-level shards:
    about 60,000 tokens of invented sentences, a tenth of them for validation."""
    folder = tmp_path_factory.mktemp("prepared")
    draw = random.Random(0)
    with (folder / "texts.jsonl").open("w") as file:
        for _ in range(300):
            file.write(json.dumps({"text": " ".join(draw.choices(WORDS, k=40)) + "."}) + "\n")
    out = folder / "data"
    given = ["--out", str(out), "--tokenizer", "bytes", "--validation-fraction", "0.1"]
    assert main(["prepare", str(folder / "texts.jsonl"), *given]) == 0
    return out
