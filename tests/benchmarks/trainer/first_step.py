"""Seconds from the start of a cold process to the end of its first step: the trainer compared with a bare script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from statistics import median

from tests.benchmarks.report.entries import Entry, at_most
from tests.benchmarks.trainer.shapes import TOY
from tests.benchmarks.trainer.timed_training import write_job
from trainwright.contracts.job_spec import EVENTS_NAME, output_folder

_LARGEST = 1.3
_SCRIPT = """
import time
import torch
from torch.nn.functional import cross_entropy
from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.transformer import Transformer

spec = ModelSpec.model_validate_json('MODEL')
model = Transformer(spec, VOCABULARY, TOKENS)
initialize(model, spec, 0)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
rows = torch.randint(VOCABULARY, (ROUNDS, MICRO, TOKENS + 1))
for batch in rows:
    loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()) / ROUNDS
    loss.backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
loss.item()
print(time.time())
"""
"""A user's script: only the network is the trainer's."""


def first_step(toy: bool, folder: Path) -> dict[str, Entry]:
    """Seconds of both, measured alternately; prints how the trainer spends them."""
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    built: list[float] = []
    for number in range(1 if toy else 5):
        for turn, who in enumerate(("ours", "bare", "bare", "ours")):
            if who == "bare":
                taken = bare_script_seconds()
            else:
                until_built, taken = _ours(folder / f"first-{number}-{turn}")
                built.append(until_built)
            if number or toy:  # the first round warms the page cache
                seconds[who].append(taken)
    ours, bare = (median(seconds[who]) for who in ("ours", "bare"))
    print(f"  ours: {median(built):.2f} s until the training is built, {ours - median(built):.2f} s its step")
    return {"first-step": at_most(ours, bare, "s from a cold process", _LARGEST, 1.0)}


def _ours(folder: Path) -> tuple[float, float]:
    """Seconds until the attempt was reported as started, and until its first step was reported."""
    job = write_job(folder, TOY, 2, precision={"kind": "fp32"})
    began = time.time()
    subprocess.run(
        [sys.executable, "-m", "trainwright_trainer.main", "train", str(job)], check=True, env=_environment()
    )
    lines = [json.loads(line) for line in (output_folder(job) / EVENTS_NAME).read_text().splitlines()]
    at = {line["type"]: datetime.fromisoformat(line["time"]).timestamp() for line in reversed(lines)}
    return at["attempt_started"] - began, at["step"] - began


def bare_script_seconds() -> float:
    script = _SCRIPT.replace("MODEL", TOY.model.model_dump_json())
    for word, number in (
        ("VOCABULARY", TOY.vocabulary),
        ("TOKENS", TOY.batch.sequence_tokens),
        ("ROUNDS", TOY.rounds),
        ("MICRO", TOY.batch.micro_sequences),
    ):
        script = script.replace(word, str(number))
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True, env=_environment()
    )
    return float(done.stdout) - began


def _environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}
