"""The platform of the model check: its real code, on a real database in memory, one message at a time.

The response to a message depends only on the rows. So every pair of rows and message is executed once, even if it occurs
in many states of the nodes. Rows that differ only in values that no rule reads (ids, times, texts, renewal numbers)
count as equal.
"""

import sqlite3
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast
from uuid import UUID

from sqlalchemy import select

from trainwright.contracts.agent_protocol import (
    EndReport,
    Phase,
    Renewal,
    SelfTestCheck,
    SelfTestReport,
    Timers,
    UploadRequest,
)
from trainwright.contracts.checkpoint import CheckpointKind, FileEntry
from trainwright.contracts.end_codes import EndCode, end_class
from trainwright.contracts.job_spec import Outcome
from trainwright.contracts.rank_progress import RankActivity, RankProgress, Stall, StalledRank
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.attempts import attempt_end, claims, fencing, renewals, retry_policy
from trainwright_backend.checkpoints import service as checkpoints
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.core.ids import public_id
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.nodes import quarantine as quarantines
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs import pause, service
from trainwright_backend.runs.tables import Placement, Run, RunEvent
from trainwright_backend.runs.transitions import ReplayedRun, fold
from trainwright_backend.scheduling import moving, placement, placement_round

STEPS = 2
"""The steps that each run saves: the first at a pause, the second at the end of training."""
HOUR = 3600.0
LEASE_TICKS = 2
"""In ticks of the check's clock. A supervisor stops its children after one."""
TICK_SECONDS = 1_000 * HOUR
TIMERS = Timers(
    heartbeat_seconds=1e4 * HOUR,
    renewal_seconds=HOUR,
    lease_seconds=LEASE_TICKS * TICK_SECONDS,
    margin_seconds=TICK_SECONDS,
    grace_seconds=HOUR,
)
"""Long enough that no timer of the wall clock ends while the check runs."""

MUTABLE = (
    "run",
    "run_event",
    "run_summary",
    "attempt",
    "node",
    "node_failure",
    "placement",
    "placement_slot",
    "checkpoint",
    "quota",
    "quota_ledger",
    "slot_time",
    "object_to_delete",
)
"""Tables that the messages change, in an order in which restoring a table never deletes rows of an earlier one."""

Message = tuple[Hashable, ...]
Rows = dict[str, list[tuple[Any, ...]]]


class BrokenRuleError(Exception):
    """A rule that must hold in every state is broken."""


@dataclass(frozen=True)
class PlacedRun:
    """An open placement, claimed or not, with the values that the nodes' messages need."""

    run: int
    node: int
    claim: str | None
    fence: int | None


@dataclass(frozen=True)
class RunRow:
    """The values of a run that rules read."""

    state: RunState
    fence: int
    nodes: int
    has_last_checkpoint: bool


@dataclass(frozen=True)
class View:
    """The values of the platform's rows that nodes and rules see."""

    runs: tuple[RunRow, ...]
    placed: tuple[PlacedRun, ...]
    slots: frozenset[tuple[int, int, int]]
    """Node, index and run of each occupied slot."""
    quarantined: frozenset[int]


@dataclass(frozen=True)
class Response:
    """The rows after a message, by number, and the sender's response."""

    rows: int
    reply: Any = None
    refused: str = ""


class Platform:
    """States of the platform by number; `send` maps a state and a message to the next.

    Args:
        content: the serialized database to start from, with two nodes and queued runs.
        database: not used otherwise: its connection gets `content` in memory.
    """

    def __init__(self, content: bytes, database: Database, store: LocalStore) -> None:
        self._database, self._store = database, store
        connection = database.engine.raw_connection()
        self._raw = cast(sqlite3.Connection, connection.driver_connection)
        self._raw.deserialize(_without_wal(content))
        self._raw.execute("PRAGMA foreign_keys=OFF")  # rows are restored table by table
        connection.close()
        tables = {row[0] for row in self._raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._tables = [table for table in MUTABLE if table in tables]
        self.runs = [UUID(row[0]) for row in self._raw.execute("SELECT id FROM run ORDER BY id")]
        self.nodes = [UUID(row[0]) for row in self._raw.execute("SELECT id FROM node ORDER BY name")]
        self._run_index = {run.hex: n for n, run in enumerate(self.runs)}
        self._node_index = {node.hex: n for n, node in enumerate(self.nodes)}
        self._columns = {
            table: [row[1] for row in self._raw.execute(f"PRAGMA table_info({table})")]
            for table in self._tables
        }
        self._rows: list[Rows] = []
        self._numbers: dict[Hashable, int] = {}
        self._views: list[View] = []
        self._present = -1
        self._responses: dict[tuple[int, Message], Response] = {}
        self.executed = 0
        self.start = self._number()

    def view(self, rows: int) -> View:
        return self._views[rows]

    @property
    def states(self) -> int:
        return len(self._rows)

    def send(self, rows: int, message: Message) -> Response:
        """The result of ``message`` in the state ``rows``.

        Raises:
            BrokenRuleError: the message broke a rule that concerns the rows alone.
        """
        key = (rows, message)
        if key not in self._responses:
            self._responses[key] = self._execute(rows, message)
        return self._responses[key]

    def _execute(self, rows: int, message: Message) -> Response:
        self.executed += 1
        if self._present != rows:
            self._restore(rows)
        kind, *arguments = message
        handler: Callable[..., Any] = getattr(self, f"_on_{kind}")
        try:
            with self._database.write() as session:
                reply = handler(session, *arguments)
        except AppError as error:
            return Response(rows, refused=error.code)
        except (AssertionError, ValueError, LookupError) as error:
            raise BrokenRuleError(f"{kind} fails: {error}") from error
        number = self._number()
        self._check_step(rows, number, message)
        return Response(number, reply)

    # The messages

    def _on_claim(self, session: Write, node: int, run: int, claim: str) -> tuple[int, int, bool]:
        granted = claims.claim(
            session, self._store, self.nodes[node], public_id("run", self.runs[run]), claim, TIMERS
        )
        return granted.fence, granted.job.node_rank, granted.job.kind.value == "export"

    def _on_renew(
        self, session: Write, node: int, run: int, claim: str, fence: int, phase: str, hung: int, code: str
    ) -> str:
        """``hung`` is the rank that hangs, or -1."""
        exit = Outcome(code=EndCode(code), message=code) if code else None
        request = Renewal(
            claim_id=claim,
            fence=fence,
            phase=Phase(phase),
            stall=_stall(hung) if hung >= 0 else None,
            exit=exit,
        )
        run_id = public_id("run", self.runs[run])
        return renewals.renew(session, self.nodes[node], run_id, request, TIMERS).order.value

    def _on_end(self, session: Write, node: int, run: int, claim: str, fence: int, code: str) -> str:
        exit = Outcome(code=EndCode(code), message=code)
        report = EndReport(claim_id=claim, fence=fence, exit=exit, offsets={})
        run_id = public_id("run", self.runs[run])
        return attempt_end.report_end(session, self.nodes[node], run_id, report, TIMERS).state.value

    def _on_commit(self, session: Write, node: int, run: int, fence: int, kind: str, step: int) -> None:
        """What `ingest.commit_checkpoint` does, without files."""
        row = fencing.run_of_node(session, self.nodes[node], public_id("run", self.runs[run]))
        fencing.check_live_fence(session, self.nodes[node], row, fence)
        fencing.check_first_node(session, self.nodes[node], row)
        digest = "0" * 64
        files = [FileEntry(name="manifest.json", bytes=1, digest=digest)]
        request = UploadRequest(fence=fence, kind=CheckpointKind(kind), step=step, files=files)
        announced = checkpoints.announce(session, self._store, row, request)
        keep = RunSpec.model_validate(row.spec).checkpoint
        checkpoints.commit(session, row, announced.id, digest, None, keep)

    def _on_expire(self, session: Write, node: int, claim: str) -> None:
        """The reaper has seen no renewal for the length of a lease."""
        row = session.scalars(
            select(Placement).where(Placement.node_id == self.nodes[node], Placement.claim_id == claim)
        ).one()
        attempt_end.expire_lease(session, row.id, row.renewal, TIMERS)

    def _on_place(self, session: Write) -> None:
        planned = placement_round.plan_round(session, TIMERS)
        for run_id, nodes in planned.placements.items():
            placement.place(session, run_id, nodes, TIMERS)

    def _on_withdraw(self, session: Write, node: int, run: int) -> None:
        row = session.scalars(
            select(Placement).where(
                Placement.node_id == self.nodes[node],
                Placement.run_id == self.runs[run],
                Placement.claim_id.is_(None),
            )
        ).one()
        placement.withdraw(session, row.id)

    def _on_requeue(self, session: Write, run: int) -> None:
        retry_policy.requeue(session, self.runs[run])

    def _on_cancel(self, session: Write, run: int) -> None:
        row = session.get_one(Run, self.runs[run])
        service.cancel_run(session, row.team_id, public_id("run", row.id), "Ada")

    def _on_move(self, session: Write, run: int) -> None:
        """A person moves the run off the first of its nodes."""
        row = session.get_one(Run, self.runs[run])
        on = moving.nodes_of(session, row)
        moving.move_run(
            session, row.team_id, public_id("run", row.id), on[0] if on else "none", "Ada", TIMERS
        )

    def _on_pause(self, session: Write, run: int) -> None:
        row = session.get_one(Run, self.runs[run])
        pause.pause_run(session, row.team_id, public_id("run", row.id), "Ada")

    def _on_resume(self, session: Write, run: int) -> None:
        row = session.get_one(Run, self.runs[run])
        pause.resume_run(session, row.team_id, public_id("run", row.id), "Ada")

    def _on_self_test(self, session: Write, node: int) -> None:
        row = session.get_one(Node, self.nodes[node])
        wanted = quarantines.wanted_self_test(row)
        assert wanted is not None, "only nodes in quarantine are tested"
        checks = [SelfTestCheck(name="memory", passed=True)]
        quarantines.take_self_test(session, row, SelfTestReport(id=wanted, checks=checks), TIMERS)

    # The rows

    def _restore(self, rows: int) -> None:
        self._raw.execute("BEGIN")
        for table, content in self._rows[rows].items():
            self._raw.execute(f"DELETE FROM {table}")
            if content:
                marks = ",".join("?" * len(content[0]))
                self._raw.executemany(f"INSERT INTO {table} VALUES ({marks})", content)
        self._raw.execute("COMMIT")
        self._present = rows

    def _number(self) -> int:
        """The number of the database's current rows. Equal rows have the same number."""
        rows = {table: self._raw.execute(f"SELECT * FROM {table}").fetchall() for table in self._tables}
        named = {
            table: [dict(zip(self._columns[table], row, strict=True)) for row in content]
            for table, content in rows.items()
        }
        key = self._canonical(named)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._rows)
            self._rows.append(rows)
            self._views.append(self._seen(named))
            self._present = found
            self._check_rows()
        self._present = -1 if self._rows[found] != rows else found
        return found

    def _canonical(self, named: dict[str, list[dict[str, Any]]]) -> Hashable:
        """The values of the rows that rules read. No layout is changed, so they do not include the steps that attempts
        made."""
        runs, nodes = self._run_index, self._node_index
        fences = {row["id"]: row["fence"] for row in named["run"]}
        return (
            tuple(
                (
                    row["state"],
                    row["verdict"],
                    row["verdict"] and row["reason"],
                    row["fence"],
                    row["attempt"],
                    row["avoided_nodes"],
                )
                for row in named["run"]
            ),
            tuple(
                (runs[row["run_id"]], row["number"], row["reason"] and end_class(EndCode(row["reason"])))
                for row in named["attempt"]
            ),
            frozenset(
                (
                    runs[row["run_id"]],
                    nodes[row["node_id"]],
                    row["claim_id"],
                    row["fence"],
                    row["closed"],
                    *_of_newest_attempt(row, fences[row["run_id"]]),
                )
                for row in named["placement"]
            ),
            frozenset(
                (runs[row["run_id"]], row["attempt"], row["kind"], row["step"], row["committed"] is not None)
                for row in named["checkpoint"]
            ),
            tuple(row["quarantined"] is not None for row in named["node"]),
            tuple(sorted(nodes[row["node_id"]] for row in named["node_failure"])),
            tuple(row["used"] for row in named["quota"]),
        )

    def _seen(self, named: dict[str, list[dict[str, Any]]]) -> View:
        owner = {row["id"]: self._run_index[row["run_id"]] for row in named["placement"]}
        last = {
            row["run_id"]
            for row in named["checkpoint"]
            if row["kind"] == "state" and row["step"] == STEPS and row["committed"] is not None
        }
        return View(
            runs=tuple(
                RunRow(RunState(row["state"]), row["fence"], row["nodes"], row["id"] in last)
                for row in named["run"]
            ),
            placed=tuple(
                PlacedRun(
                    self._run_index[row["run_id"]],
                    self._node_index[row["node_id"]],
                    row["claim_id"],
                    row["fence"],
                )
                for row in named["placement"]
                if row["closed"] is None
            ),
            slots=frozenset(
                (self._node_index[row["node_id"]], row["slot_index"], owner[row["placement_id"]])
                for row in named["placement_slot"]
            ),
            quarantined=frozenset(
                n
                for n, node in enumerate(self.nodes)
                if any(row["id"] == node.hex and row["quarantined"] is not None for row in named["node"])
            ),
        )

    # The rules

    def _check_rows(self) -> None:
        """Each row equals the fold of its events, and the quota in use is the number of occupied slots."""
        with self._database.read() as session:
            for run in session.scalars(select(Run)).all():
                events = select(RunEvent).where(RunEvent.run_id == run.id).order_by(RunEvent.sequence)
                row = ReplayedRun(run.state, run.verdict, run.reason, run.fence, run.attempt, run.message)
                if fold(session.scalars(events)) != row:
                    raise BrokenRuleError("the row is not the fold of its events")
        held = self._raw.execute("SELECT COUNT(*) FROM placement_slot").fetchone()[0]
        used = self._raw.execute("SELECT SUM(used) FROM quota WHERE device = 'cpu'").fetchone()[0]
        if used != held:
            raise BrokenRuleError(f"runs occupy {held} slots, and the quota counts {used}")

    def _check_step(self, before: int, after: int, message: Message) -> None:
        for old, new in zip(self._views[before].runs, self._views[after].runs, strict=True):
            if new.fence < old.fence:
                raise BrokenRuleError("a fence has become smaller")
            if old.state in FINAL and new != old:
                raise BrokenRuleError(f"a run that was {old.state} has changed")
        fence = _fence_of(message)
        if fence is not None and before != after:
            run = cast(int, message[2])
            if fence != self._views[before].runs[run].fence:
                raise BrokenRuleError(f"{message[0]} with an old fence has changed the rows")


def _of_newest_attempt(row: dict[str, Any], fence: int) -> tuple[Hashable, ...]:
    """The values of a placement that rules read only while its attempt is the run's newest."""
    if row["fence"] is not None and row["fence"] < fence:
        return ()
    exports = row["job"] is not None and '"kind": "export"' in row["job"]
    saved = row["end_reason"] in (EndCode.SAVED, EndCode.FINISHED)
    return (row["node_rank"], saved, row["stall"] is not None, exports)


def _without_wal(content: bytes) -> bytes:
    """A serialized database with a rollback journal: one in memory cannot have a write-ahead log."""
    return content[:18] + b"\1\1" + content[20:]


def _fence_of(message: Message) -> int | None:
    """The fence that a message carries."""
    position = {"renew": 4, "end": 4, "commit": 3}.get(cast(str, message[0]))
    return None if position is None else cast(int, message[position])


@cache
def _stall(rank: int) -> Stall:
    position = RankProgress(step=1, activity=RankActivity.STEP, sections=rank)
    return Stall(seconds=31, ranks=[StalledRank(rank=rank, position=position, stopped=rank == 0)])
