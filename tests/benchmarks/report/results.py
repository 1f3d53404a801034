"""Results of GPU benchmarks, in one append-only file from which the table in ``docs/benchmarks.md`` is made."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, TypeAdapter

from trainwright_trainer.observe.memory import device_name

DOCS = Path(__file__).resolve().parents[3] / "docs"
RECORD = DOCS / "benchmarks" / "gpu.json"

Figure = int | float | str


class RefusedError(Exception):
    """A row cannot be measured here. The message gives the reason and the remedy."""


class Result(BaseModel):
    """One row, measured once."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    row: str
    date: str
    """Day, `2026-01-31`."""

    device: str
    torch: str
    command: str
    figures: dict[str, Figure]
    """Values by name, which contains the unit."""


_RESULTS = TypeAdapter(list[Result])


def result(row: str, command: str, figures: dict[str, Figure]) -> Result:
    """``figures`` with today's date and this machine."""
    kind = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Result(
        row=row,
        date=time.strftime("%Y-%m-%d"),
        device=device_name(kind),
        torch=torch.__version__,
        command=command,
        figures=figures,
    )


def read(record: Path = RECORD) -> list[Result]:
    """All results, the oldest first."""
    return _RESULTS.validate_json(record.read_bytes()) if record.exists() else []


def append(new: Result, record: Path = RECORD) -> None:
    """Add ``new`` to the file. The file is replaced atomically."""
    record.parent.mkdir(parents=True, exist_ok=True)
    draft = record.with_suffix(".tmp")
    draft.write_bytes(_RESULTS.dump_json([*read(record), new], indent=1) + b"\n")
    draft.replace(record)


def latest(results: list[Result]) -> dict[str, Result]:
    """The newest result of each row."""
    return {item.row: item for item in results}
