"""Lines of ``events.jsonl`` match the contract byte for byte."""

import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from trainwright.contracts.events import (
    TRAINER_EVENT,
    AttemptStarted,
    CheckpointSaved,
    Note,
    Step,
    TrainerEvent,
)
from trainwright_trainer.observe.events import EventWriter

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
AWKWARD = [0.0, -0.0, 1.0, 1e-5, 1e-7, 1.5e-45, 1e15, 1e16, 1e22, 3.141592653589793, math.nan, -math.inf]


@pytest.mark.parametrize(
    "event",
    [
        Step(time=NOW, step=3, values={f"loss/{number}": number for number in AWKWARD}),
        Step(time=NOW.astimezone(timezone(timedelta(hours=2))), step=2**40, values={}),
        Note(
            time=NOW.replace(microsecond=0), message='quotes ", ends of lines \n and \u00fc\u20ac\U0001f600'
        ),
        AttemptStarted(time=NOW, attempt=1, resume_step=0, ranks=1, parameters=7, device="a CPU"),
        CheckpointSaved(time=NOW, step=1, folder="step-1", digest="0", bytes=2**60, seconds=0.1),
    ],
)
def test_a_line_is_the_events_json_without_none_fields(tmp_path: Path, event: TrainerEvent) -> None:
    EventWriter(tmp_path / "events").write(event)
    line = (tmp_path / "events").read_bytes()
    assert line == event.model_dump_json(exclude_none=True).encode() + b"\n"
    assert TRAINER_EVENT.validate_json(line).time == event.time
