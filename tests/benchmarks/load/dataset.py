"""A small dataset that was uploaded and prepared through the platform, so that submissions of a load can be placed."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from sqlalchemy import select

from tests.benchmarks.platform.server import SPEC, TEAM, Site
from tests.live import write_letters
from trainwright.client import Client
from trainwright.contracts.api.datasets import PreparationState
from trainwright_backend.datasets.tables import Preparation

PATIENCE_SECONDS = 120.0
LINES = 2_000


def spec_with_data(site: Site) -> dict[str, object]:
    """What people submit: a run on an uploaded dataset, whose tokens are ready.

    Raises:
        RuntimeError: the worker has not prepared it in time, or could not.
    """
    with tempfile.TemporaryDirectory() as name, Client(site.url, site.key) as client:
        team = client.team(TEAM)
        file = write_letters(Path(name) / "load.jsonl", LINES)
        dataset = team.upload("load", [file]).id
        data = {"dataset": dataset, "tokenizer": {"kind": "bytes"}}
        spec: dict[str, object] = {**SPEC, "data": data}
        team.cancel(team.submit(spec).id)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (states := _states(site)) != {PreparationState.READY}:
        if PreparationState.FAILED in states or time.monotonic() > deadline:
            raise RuntimeError(f"the data of the load is not ready: its preparations are {sorted(states)}")
        time.sleep(0.2)
    return spec


def _states(site: Site) -> set[str]:
    with site.database.read() as session:
        return {str(state) for state in session.scalars(select(Preparation.state))}
