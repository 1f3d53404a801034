"""Attempt folders for tests that need no processes."""

import json
from pathlib import Path

from tests.agent.api import TIMERS
from trainwright.contracts.agent_protocol import Claim
from trainwright_agent.workspace import AttemptFolder, ClaimRecord, Workspace


def make_claim(claim_id: str, run_id: str = "run_1") -> Claim:
    job = {
        "run_id": run_id,
        "attempt": 1,
        "fence": 1,
        "spec": {"name": "by hand", "data": {"dataset": "ds_1"}},
        "device": "cpu",
        "slots": [0],
    }
    return Claim.model_validate(
        {
            "claim_id": claim_id,
            "fence": 1,
            "attempt": 1,
            "timers": TIMERS.model_dump(),
            "job": job,
            "downloads": [],
        }
    )


def make_attempt(data: Path, run_id: str = "run_1") -> AttemptFolder:
    """Create an attempt's folder with a granted claim."""
    workspace = Workspace(data)
    workspace.prepare()
    folder = workspace.create_attempt(run_id)
    claim = make_claim(folder.claim_id, run_id)
    folder.write_record(ClaimRecord(run_id=run_id, claim_id=folder.claim_id, claim=claim))
    (folder.path / "out" / "logs").mkdir(parents=True)
    return folder


def write_events(folder: Path, *lines: dict[str, object], torn: bytes = b"") -> Path:
    """Append lines, and then an incomplete one, to the attempt's events."""
    path = folder / "out" / "events.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        for line in lines:
            file.write(json.dumps({"time": "2026-01-01T00:00:00Z", **line}).encode() + b"\n")
        file.write(torn)
    return path


def step_line(step: int, **values: float) -> dict[str, object]:
    return {"type": "step", "step": step, "values": values or {"loss": 1.0 / step}}
