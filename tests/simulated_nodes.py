"""Simulated nodes: the rows of nodes and of queued runs, which the platform's own control loop places, round by round.

There are no agents. Time passes in steps: a run that is placed leaves its nodes after its number of steps. It stays `queued` in the
meantime, since nobody claims it.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import SecretStr
from sqlalchemy import insert, select

from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright.contracts.token_shards import Shard, ShardManifest, ShardSplit, TokenType
from trainwright_backend.auth.tables import Team
from trainwright_backend.control.loop import ControlLoop
from trainwright_backend.core.db import Database, Write, now
from trainwright_backend.core.ids import new_id
from trainwright_backend.core.message_queue import Enqueuer
from trainwright_backend.core.open_store import open_store
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.sse import Topics
from trainwright_backend.datasets.tables import Dataset, DatasetVersion, Preparation
from trainwright_backend.migrations.run import migrate
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Placement, Run
from trainwright_backend.runs.transitions import lock_run, move
from trainwright_backend.teams.tables import Quota

GPUS_PER_NODE = 8
NODES_PER_RACK = 16
SIZES: Mapping[int, float] = {1: 0.5, 2: 0.15, 4: 0.12, 8: 0.1, 16: 0.06, 32: 0.04, 64: 0.03}
"""Share of runs by their number of nodes."""


@dataclass(frozen=True)
class SimulatedRun:
    """What a run asks for, and how many steps it stays on its nodes."""

    nodes: int
    slots_per_node: int
    steps: int
    max_hours: float | None = None
    """Its maximum run time. If it has one, a round knows when it leaves its nodes at the latest."""


@dataclass
class SimulatedNodes:
    """Nodes with eight GPUs each, and the runs of some teams."""

    database: Database
    loop: ControlLoop
    teams: list[UUID]
    preparations: dict[UUID, UUID]
    runs: dict[UUID, SimulatedRun] = field(default_factory=dict)
    """All runs that were submitted."""
    placed: dict[UUID, int] = field(default_factory=dict)
    """The step in which each run was placed."""
    occupied: dict[UUID, int] = field(default_factory=dict)
    """The step in which each run on nodes leaves them."""
    step: int = 0

    @classmethod
    def create(cls, folder: Path, nodes: int, teams: int) -> "SimulatedNodes":
        """A platform on SQLite in ``folder`` with idle nodes."""
        settings = Settings(
            secret_key=SecretStr("a secret of simulated nodes, long enough"),
            data_dir=folder,
            database_url=f"sqlite:///{folder / 'simulated.sqlite3'}",
        )
        database = Database(
            settings.resolved_database_url, {"enqueuer": Enqueuer(settings), "topics": Topics()}
        )
        migrate(database)
        with database.write() as session:
            session.execute(insert(Node), [_node(number) for number in range(nodes)])
            preparations = {}
            for number in range(teams):
                team_id, preparation_id = _add_team(session, number, nodes * GPUS_PER_NODE)
                preparations[team_id] = preparation_id
        return cls(
            database, ControlLoop(database, settings, open_store(settings)), [*preparations], preparations
        )

    def submit(self, team_id: UUID, runs: Iterable[SimulatedRun]) -> list[UUID]:
        """Queue runs of a team; returns their ids."""
        made = {new_id(): run for run in runs}
        rows = [_row(run_id, team_id, self.preparations[team_id], run) for run_id, run in made.items()]
        with self.database.write() as session:
            session.execute(insert(Run), rows)
        self.runs |= made
        return [*made]

    def place(self) -> list[UUID]:
        """One placement round of the control loop; returns the runs that it placed."""
        self.loop.run_round(sweep=False)
        with self.database.read() as session:
            on_nodes = set(session.scalars(select(Placement.run_id).distinct()))
        new = sorted(on_nodes - self.occupied.keys())
        for run_id in new:
            self.placed[run_id] = self.step
            self.occupied[run_id] = self.step + self.runs[run_id].steps
        return new

    def pass_step(self) -> None:
        """A step later, the runs whose time is over have left their nodes."""
        self.step += 1
        for run_id in [run_id for run_id, end in self.occupied.items() if end <= self.step]:
            with self.database.write() as session:
                run = lock_run(session, run_id)
                assert run is not None
                move(session, run, RunState.CANCELLED, "its time is over")
            del self.occupied[run_id]

    @property
    def waiting(self) -> set[UUID]:
        return self.runs.keys() - self.placed.keys()


def random_run(dice: random.Random, longest: int) -> SimulatedRun:
    """A run on 1 to 64 nodes. Those on several nodes use all GPUs of each."""
    (nodes,) = dice.choices([*SIZES], [*SIZES.values()])
    slots = GPUS_PER_NODE if nodes > 1 else dice.choice((1, 2, 4, 8))
    return SimulatedRun(nodes, slots, dice.randint(1, longest))


def _node(number: int) -> dict[str, Any]:
    gpu = {"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30, "capability": "9.0"}
    return {
        "id": new_id(),
        "name": f"node-{number:04}",
        "token_hash": f"{number:064}",
        "joined": now(),
        "inventory": {
            "hostname": f"node-{number:04}",
            "os": "Linux",
            "cores": 96,
            "memory_bytes": 1 << 40,
            "gpus": [{"index": index, **gpu} for index in range(GPUS_PER_NODE)],
            "cpu_slots": 0,
            "peer_address": f"10.{number >> 8}.{number & 255}.1",
            "location": f"rack-{number // NODES_PER_RACK:03}",
        },
        "busy_slots": {},
        "hardware": None,
        "last_heartbeat": now() + timedelta(days=1),
        "allowed_slots": None,
        "draining": False,
        "quarantine_reason": "",
    }


def _add_team(session: Write, number: int, slots: int) -> tuple[UUID, UUID]:
    """A team that may use as many slots, and its data."""
    team = Team(slug=f"team-{number:02}", name=f"Team {number}")
    session.add(team)
    session.flush()
    session.add(Quota(team_id=team.id, device="cuda", slots_limit=slots))
    dataset = Dataset(team_id=team.id, name="letters", created_by_name="Ada")
    session.add(dataset)
    session.flush()
    version = DatasetVersion(
        dataset_id=dataset.id, number=1, bytes=0, digest="0" * 64, curation={}, changes=[], state="ready"
    )
    session.add(version)
    session.flush()
    preparation = Preparation(
        team_id=team.id,
        version_id=version.id,
        digest="0" * 64,
        tokenizer={"kind": "bytes"},
        validation_fraction=0.01,
        state="ready",
        lengths=[],
        manifest=_manifest().model_dump(mode="json"),
        train_tokens=10**6,
    )
    session.add(preparation)
    session.flush()
    return team.id, preparation.id


def _manifest() -> ShardManifest:
    shard = Shard(name="train-00000.bin", digest="0" * 64, bytes=2 * 10**6, tokens=10**6, documents=1)
    return ShardManifest(
        tokenizer=TokenizerSpec(kind=TokenizerKind.BYTES),
        end_of_text=256,
        token_type=TokenType.for_vocabulary(257),
        tokenizer_digest="0" * 64,
        validation_fraction=0.01,
        train=ShardSplit(documents=1, tokens=10**6, shards=[shard]),
    )


def _row(run_id: UUID, team_id: UUID, preparation_id: UUID, run: SimulatedRun) -> dict[str, Any]:
    ranks = run.nodes * run.slots_per_node
    spec = RunSpec.model_validate(
        {
            "name": f"run {run_id.hex[-6:]}",
            "data": {"dataset": "letters", "tokenizer": {"kind": "bytes"}},
            "batch": {"sequence_tokens": 64, "micro_sequences": 1, "global_sequences": ranks},
            "precision": {"kind": "bf16"},
            "resources": {
                "device": "cuda",
                "nodes": run.nodes,
                "slots_per_node": run.slots_per_node,
                "max_hours": run.max_hours,
            },
        }
    ).model_dump(mode="json")
    return {
        "id": run_id,
        "team_id": team_id,
        "preparation_id": preparation_id,
        "created": now(),
        "created_by_name": "Ada",
        "name": spec["name"],
        "folded_name": spec["name"],
        "spec": spec,
        "dataset": "letters",
        "model": "simulated",
        "device": "cuda",
        "slots": ranks,
        "nodes": run.nodes,
        "max_seconds": None if run.max_hours is None else run.max_hours * 3_600,
        "avoided_nodes": [],
        "state": RunState.QUEUED,
        "message": "",
        "fence": 0,
        "attempt": 0,
        "event_sequence": 0,
        "waiting_reason": "",
        "progress": "",
    }
