"""A run without an end of its own, in FP8, on a deployment's node."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.live import eventually, write_letters


class CommandLine(Protocol):
    """Runs `trainwright` as a person does."""

    def cli(self, *words: object) -> str:
        """Its standard output."""

    def cli_json(self, *words: object) -> Any:
        """The same with `--json`, parsed."""


@dataclass
class Training:
    """A run on the deployment that ``user`` talks to."""

    user: CommandLine
    run_id: str

    def show(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.user.cli_json("runs", "show", self.run_id)
        return shown

    def step(self) -> int:
        """The newest step that the server has."""
        summary = self.show()["summary"]
        return int(summary["step"])

    def advances(self, claim: str, seconds: float = 120) -> None:
        """Wait until the run has trained another ten steps."""
        before = self.step()
        eventually(lambda: self.step() >= before + 10, f"the run advances {claim}", seconds)

    def is_saved(self) -> bool:
        """Whether the run has a checkpoint."""
        return bool(self.user.cli_json("runs", "checkpoints", self.run_id))


def start_training(user: CommandLine, folder: Path, path: Path | None = None) -> Training:
    """Upload a dataset and submit a run on it.

    Args:
        folder: where the files for this are written.
        path: of the folder, where the command line runs, if it is another one.
    """
    path = path or folder
    write_letters(folder / "letters.jsonl")
    uploaded = user.cli("datasets", "upload", "letters", path / "letters.jsonl")
    spec = {
        "name": "eight bits",
        "data": {"dataset": uploaded.split()[0], "tokenizer": {"kind": "bytes"}, "validation_fraction": 0.1},
        "model": {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2},
        "batch": {"sequence_tokens": 64, "micro_sequences": 4, "global_sequences": 8},
        "schedule": {"steps": 1_000_000, "warmup_steps": 5},
        "precision": {"kind": "fp8"},
        "checkpoint": {"every_steps": 25},
        "resources": {"device": "cpu", "slots_per_node": 2},
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    return Training(user, user.cli("runs", "submit", path / "spec.json").split()[0])
