"""The model check's machines: agents, supervisors, trainers, and a network that loses, delays and repeats messages.

A `World` is one state of everything, a `Move` what may happen next. A move has a cost if it is a disturbance;
a check allows a number of them. What repairs itself costs nothing, and every run must be able to end by such moves alone.

Simplified: a supervisor fetches nothing; a message is processed when it is sent, unless it is a late one, of
which a node has at most one; ranks finish together. The clock ticks twice in a lease.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from tests.backend.nodes.model_check.platform import (
    LEASE_TICKS,
    STEPS,
    Answer,
    BrokenRuleError,
    Message,
    Platform,
)
from tests.backend.nodes.model_check.supervisor_lease import SupervisorLeases
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_agent.supervisor.lease import LeaseEnd


class Stage(IntEnum):
    """What is left of an attempt on a node."""

    UNCLAIMED = 0
    """A folder with a claim id, and no supervisor yet."""
    SUPERVISED = 1
    ENDED = 2
    """Its supervisor has written `exit.json`, and renews until the platform has accepted the end."""
    LEFT = 3
    """`exit.json` exists, and no supervisor runs."""
    LOST = 4
    """The supervisor died before it wrote `exit.json`."""


class Progress(IntEnum):
    """What the trainer of a supervised attempt has done."""

    WAITING = 0
    STARTED = 1
    STEPPING = 2
    EXPORTING = 3


class Fault(StrEnum):
    """A disturbance."""

    LATE = "late message"
    STALE_HEARTBEAT = "stale heartbeat"
    LAPSE = "a lease is not renewed in time"
    LATE_CLAIM = "an agent claims too slowly"
    CRASH = "rank crashes"
    SUPERVISOR = "supervisor is killed"
    FREEZE = "supervisor is stopped"
    AGENT = "agent dies"
    REBOOT = "node restarts"
    HANG = "rank hangs"
    USER = "user"


class Folder(NamedTuple):
    """An attempt on a node."""

    run: int
    claim: int
    stage: Stage = Stage.UNCLAIMED
    fence: int = 0
    rank: int = 0
    exports_only: bool = False
    progress: Progress = Progress.WAITING
    trainer: bool = False
    age: int | None = None
    """Of the lease: see `Held`."""
    frozen: bool = False
    hung: bool = False
    saving: bool = False
    code: str = ""


class Late(NamedTuple):
    """A message that is still on its way."""

    kind: str
    """`request`, or the `reply` to a renewal."""
    claim: int
    message: Message
    order: str = ""
    since: int = 0
    """Ticks since the request was sent."""


class Machine(NamedTuple):
    """A node."""

    agent: bool = True
    folders: tuple[Folder, ...] = ()
    late: Late | None = None
    created: int = 0
    """Claim ids that its agent has made."""


class World(NamedTuple):
    """One state of everything."""

    rows: int
    machines: tuple[Machine, ...]
    seen: tuple[tuple[int, str, int], ...] = ()
    """Node, claim and ticks since its last renewal, as the reaper counts them, of each open claim."""
    faults_left: int = 0
    asks_left: frozenset[str] = frozenset()
    """What users may still ask for."""


class Move(NamedTuple):
    """Something that may happen, and what follows."""

    name: str
    world: World
    repairs: bool = True
    """It is neither a disturbance nor a person's act: every run must be able to end by such moves alone."""


@dataclass(frozen=True)
class Rules:
    """What the machines obey. Each is switched off once, as a planted fault."""

    supervisor_fences: bool = True
    """A supervisor kills its trainer at its deadline."""
    has_guard: bool = True
    """Each supervisor has a guard, which kills a stopped one with its trainer."""
    watchdog: bool = False
    """If there is neither: a live agent kills what has missed its deadline."""
    renewal_first: bool = True
    """A supervisor starts nothing before a renewal was answered with `go`."""
    dies_with_supervisor: bool = True
    """A supervisor's death ends its trainer."""


def claim_id(node: int, claim: int) -> str:
    return f"node-{node}-claim-{claim:04d}"


class Machines:
    """Generates the moves of a world.

    Args:
        faults: the kinds of disturbances that may happen.
        checks_slots: whether a process on a free slot is an error already. Otherwise the check goes on until the slot has led to
            two live attempts.
    """

    def __init__(
        self,
        platform: Platform,
        leases: SupervisorLeases,
        rules: Rules = Rules(),
        faults: frozenset[Fault] = frozenset(Fault),
        *,
        checks_slots: bool = True,
    ) -> None:
        self._platform, self._leases, self._rules, self._faults = platform, leases, rules, faults
        self._checks_slots = checks_slots

    def moves(self, world: World) -> Iterator[Move]:
        """Everything that may happen next."""
        yield from self._platform_moves(world)
        for node, machine in enumerate(world.machines):
            yield from self._agent_moves(world, node, machine)
            for folder in machine.folders:
                yield from self._attempt_moves(world, node, folder)
                if machine.agent:
                    yield from self._shipping_moves(world, node, folder)
            yield from self._network_moves(world, node, machine)
        yield from self._tick(world)

    def check(self, world: World) -> None:
        """Raise `BrokenRuleError` if two attempts of a run are alive, or a process on a slot that is free."""
        view = self._platform.view(world.rows)
        alive: dict[int, set[int]] = {}
        ranks: set[tuple[int, int]] = set()
        slots = {(node, run) for node, _, run in view.slots}
        for node, machine in enumerate(world.machines):
            for folder in machine.folders:
                if not folder.trainer:
                    continue
                alive.setdefault(folder.run, set()).add(folder.fence)
                if len(alive[folder.run]) > 1 or (folder.run, folder.rank) in ranks:
                    raise BrokenRuleError("two attempts of one run are alive")
                ranks.add((folder.run, folder.rank))
                if self._checks_slots and (node, folder.run) not in slots:
                    raise BrokenRuleError("a slot is free while a process is on it")

    def is_quiet(self, world: World) -> bool:
        """Whether each run has ended or waits for a person, and no attempt is left on a node."""
        runs = self._platform.view(world.rows).runs
        return all(run.state in FINAL or run.state is RunState.PAUSED for run in runs) and not any(
            machine.folders for machine in world.machines
        )

    # The platform's own moves, and people

    def _platform_moves(self, world: World) -> Iterator[Move]:
        view = self._platform.view(world.rows)
        if any(run.state is RunState.QUEUED for run in view.runs):
            yield from self._sent(world, "place", ("place",))
        for index, run in enumerate(view.runs):
            if run.state is RunState.RETRY_WAIT:
                yield from self._sent(world, f"run {index} is queued again", ("requeue", index))
            yield from self._asked(world, index, run.state)
        for placed in view.placed:
            if placed.claim is None:
                away = placed.node in view.quarantined
                message = ("withdraw", placed.node, placed.run)
                name = f"node {placed.node} has not claimed run {placed.run} in time"
                yield from self._sent(world, name, message, fault=None if away else Fault.LATE_CLAIM)
        for node, claim, ticks in world.seen:
            if ticks >= LEASE_TICKS:
                yield from self._sent(world, f"the lease {claim} expires", ("expire", node, claim))
        for node in view.quarantined:
            if world.machines[node].agent and not world.machines[node].folders:
                yield from self._sent(world, f"node {node} passes its self-test", ("self_test", node))

    def _asked(self, world: World, run: int, state: RunState) -> Iterator[Move]:
        if Fault.USER not in self._faults or state in FINAL:
            return
        for ask in sorted(world.asks_left):
            if ask == "resume" and state is not RunState.PAUSED:
                continue
            answer = self._platform.send(world.rows, (ask, run))
            if answer.rows != world.rows:
                after = self._with_rows(world, answer)._replace(asks_left=world.asks_left - {ask})
                yield Move(f"{ask} run {run}", after, repairs=False)

    # Agents

    def _agent_moves(self, world: World, node: int, machine: Machine) -> Iterator[Move]:
        if not machine.agent:
            yield Move(f"agent {node} starts", _with_machine(world, node, machine._replace(agent=True)))
            return
        if any(folder.stage is Stage.LOST for folder in machine.folders):
            folders = tuple(
                folder._replace(stage=Stage.LEFT, trainer=False, code="supervisor_lost")
                if folder.stage is Stage.LOST
                else folder
                for folder in machine.folders
            )
            name = f"agent {node} ends lost attempts"
            yield Move(name, _with_machine(world, node, machine._replace(folders=folders)))
        yield from self._heartbeats(world, node, machine)
        if self._may(world, Fault.AGENT) and (machine.folders or self._is_placed(world, node)):
            yield self._disturbed(
                f"agent {node} dies", _with_machine(world, node, machine._replace(agent=False))
            )
        if self._may(world, Fault.REBOOT) and machine.folders:
            folders = tuple(_rebooted(folder) for folder in machine.folders)
            rebooted = machine._replace(agent=False, folders=folders)
            yield self._disturbed(f"node {node} restarts", _with_machine(world, node, rebooted))

    def _is_placed(self, world: World, node: int) -> bool:
        return any(placed.node == node for placed in self._platform.view(world.rows).placed)

    def _heartbeats(self, world: World, node: int, machine: Machine) -> Iterator[Move]:
        """The answer lists a run that is not claimed: the agent creates a folder with a new claim id."""
        for placed in self._platform.view(world.rows).placed:
            waiting = any(
                folder.run == placed.run and folder.stage is Stage.UNCLAIMED for folder in machine.folders
            )
            if placed.node != node or waiting:
                continue
            created = machine.created + 1
            folders = (*machine.folders, Folder(placed.run, created))
            after = _with_machine(world, node, machine._replace(folders=folders, created=created))
            if placed.claim is None:
                yield Move(f"agent {node} learns of run {placed.run}", after)
            elif self._may(world, Fault.STALE_HEARTBEAT):
                yield self._disturbed(f"agent {node} reads an old answer about run {placed.run}", after)

    # Claims and supervisors

    def _attempt_moves(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        if folder.stage is Stage.UNCLAIMED:
            if world.machines[node].agent:
                yield from self._claims(world, node, folder)
            return
        if folder.stage in (Stage.SUPERVISED, Stage.ENDED):
            if folder.frozen:
                yield Move(f"supervisor {node} continues", _with(world, node, folder, frozen=False))
            else:
                yield from self._renewals(world, node, folder)
            yield from self._harm(world, node, folder)
        if folder.stage is Stage.SUPERVISED:
            yield from self._deadline(world, node, folder)
        if folder.trainer and folder.stage is Stage.SUPERVISED:
            yield from self._trainer_moves(world, node, folder)

    def _claims(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        message = ("claim", node, folder.run, claim_id(node, folder.claim))
        name = f"node {node} claims run {folder.run} as {folder.claim}"
        answer = self._platform.send(world.rows, message)
        reached = self._with_rows(world, answer)
        if answer.refused:
            yield Move(f"{name}: refused", _without(reached, node, folder))
        else:
            fence, rank, exports_only = answer.reply
            started = folder._replace(
                stage=Stage.SUPERVISED, fence=fence, rank=rank, exports_only=exports_only
            )
            if not self._rules.renewal_first:
                started = started._replace(trainer=True, progress=Progress.STARTED, age=0)
            yield Move(name, _replaced(reached, node, folder, started))
            if answer.rows != world.rows:
                yield Move(f"{name}, and the answer is lost", reached)
        yield from self._delayed(world, node, Late("request", folder.claim, message), name)

    def _renewals(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        message = _renewal(node, folder)
        name = f"supervisor {node}.{folder.claim} renews"
        answer = self._platform.send(world.rows, message)
        reached = self._renewed(world, node, folder.claim, answer)
        order = "refused" if answer.refused else answer.reply
        after = self._after_reply(reached, node, folder, 0, order)
        yield Move(f"{name}: {order}", after)
        if reached != world:
            yield Move(f"{name}, and the answer is lost", reached)
        if reached.machines[node].late is None and not answer.refused:
            late = Late("reply", folder.claim, (), order)
            yield from self._delayed(reached, node, late, f"{name}: {order},")
        yield from self._delayed(world, node, Late("request", folder.claim, message), name)

    def _renewed(self, world: World, node: int, claim: int, answer: Answer) -> World:
        """The reaper sees that a renewal was acknowledged."""
        after = self._with_rows(world, answer)
        if answer.refused:
            return after
        name = claim_id(node, claim)
        seen = tuple((n, c, 0 if (n, c) == (node, name) else ticks) for n, c, ticks in after.seen)
        return after._replace(seen=seen)

    def _after_reply(self, world: World, node: int, folder: Folder, since: int, order: str) -> World:
        """The supervisor follows the order, if its lease lets it."""
        if order == "refused":
            return _ended(world, node, folder, "lease_expired", Stage.LEFT)
        held = self._leases.after_reply(folder.age, since, order)
        if held.end is LeaseEnd.RELEASED:
            code = "lease_expired" if folder.stage is Stage.SUPERVISED else folder.code
            return _ended(world, node, folder, code, Stage.LEFT)
        if not held.order or held.end is not None:
            return world
        if folder.stage is Stage.ENDED:
            return world
        renewed = folder._replace(age=held.age)
        world = _replaced(world, node, folder, renewed)
        if order == "kill":
            return _ended(world, node, renewed, "stopped")
        if order == "save":
            return _saved(world, node, renewed)
        if order == "go" and renewed.progress is Progress.WAITING:
            return _started(world, node, renewed)
        return world

    def _deadline(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        if not self._leases.is_expired(folder.age):
            return
        if not folder.frozen and self._rules.supervisor_fences:
            yield Move(f"supervisor {node} fences itself", _ended(world, node, folder, "self_fenced"))
        elif folder.frozen and self._rules.has_guard:
            yield Move(f"guard {node} kills the supervisor", _lost(world, node, folder))
        elif self._rules.watchdog and world.machines[node].agent:
            yield Move(f"agent {node} kills the supervisor", _lost(world, node, folder))

    def _must_end_first(self, world: World, node: int, folder: Folder) -> bool:
        """Whether time cannot pass before the attempt's processes have been killed."""
        return (
            folder.stage is Stage.SUPERVISED
            and self._leases.is_expired(folder.age)
            and any(True for _ in self._deadline(world, node, folder))
        )

    # Trainers

    def _trainer_moves(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        peers = _peers(world, folder)
        nodes = self._platform.view(world.rows).runs[folder.run].nodes
        complete = len(peers) == nodes and not any(peer.hung for _, peer in peers)
        together = complete and folder.rank == 0
        if folder.progress is Progress.STARTED and complete:
            yield Move(f"trainer {node} steps", _with(world, node, folder, progress=Progress.STEPPING))
        misses_another = len(peers) < nodes and folder.progress in (Progress.STARTED, Progress.STEPPING)
        if (
            misses_another
            and not folder.frozen
            and any(each.progress is Progress.STEPPING for _, each in peers)
        ):
            yield Move(f"rank on node {node} misses another", _ended(world, node, folder, "rank_lost"))
        steps = all(peer.progress is Progress.STEPPING for _, peer in peers)
        if together and steps and not any(peer.frozen for _, peer in peers):
            if folder.saving:
                yield Move(f"run {folder.run} saves", _all_ended(world, folder, "saved"))
            yield Move(f"run {folder.run} is trained", _trained(world, node, folder))
        is_stored = self._platform.view(world.rows).runs[folder.run].has_last_checkpoint
        if folder.progress is Progress.EXPORTING and is_stored and not folder.frozen:
            yield Move(f"run {folder.run} is exported", _ended(world, node, folder, "finished"))

    # Disturbances of an attempt

    def _harm(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        if self._may(world, Fault.SUPERVISOR):
            yield self._disturbed(
                f"supervisor {node}.{folder.claim} is killed", self._killed(world, node, folder)
            )
        if folder.stage is not Stage.SUPERVISED:
            return
        if self._may(world, Fault.FREEZE) and not folder.frozen:
            yield self._disturbed(f"supervisor {node} is stopped", _with(world, node, folder, frozen=True))
        if self._may(world, Fault.CRASH) and folder.trainer and not folder.frozen:
            yield self._disturbed(f"a rank on node {node} crashes", _ended(world, node, folder, "crashed"))
        if self._may(world, Fault.HANG) and folder.progress is Progress.STEPPING and not folder.hung:
            hung = world
            for at, peer in _peers(world, folder):
                if peer.progress is Progress.STEPPING:
                    hung = _with(hung, at, peer, hung=True)
            yield self._disturbed(f"run {folder.run} hangs", hung)

    def _killed(self, world: World, node: int, folder: Folder) -> World:
        if folder.stage is Stage.ENDED:
            return _replaced(world, node, folder, folder._replace(stage=Stage.LEFT, frozen=False))
        trainer = folder.trainer and not self._rules.dies_with_supervisor
        lost = folder._replace(
            stage=Stage.LOST, trainer=trainer, frozen=False, hung=False, saving=False, age=None
        )
        return _replaced(world, node, folder, lost)

    # Shipping

    def _shipping_moves(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        if folder.progress is Progress.EXPORTING and folder.trainer and not folder.exports_only:
            message = ("commit", node, folder.run, folder.fence, "state", STEPS)
            yield from self._sent(world, f"node {node} commits the last checkpoint", message)
        if folder.stage not in (Stage.ENDED, Stage.LEFT):
            return
        world = self._commit(world, node, folder)
        message = ("end", node, folder.run, claim_id(node, folder.claim), folder.fence, folder.code)
        name = f"agent {node} reports {folder.claim} as {folder.code}"
        answer = self._platform.send(world.rows, message)
        reached = self._with_rows(world, answer)
        yield Move(f"{name}: {answer.refused or answer.reply}", _without(reached, node, folder))
        if reached != world:
            yield Move(f"{name}, and the answer is lost", reached)
        yield from self._delayed(world, node, Late("request", folder.claim, message), name)

    def _commit(self, world: World, node: int, folder: Folder) -> World:
        """What is stored before the end: the checkpoint of a pause, or the export."""
        if folder.rank != 0 or folder.code not in ("saved", "finished"):
            return world
        if folder.code == "saved" and folder.progress is Progress.EXPORTING:
            return world
        kind, step = ("state", 1) if folder.code == "saved" else ("export", STEPS)
        message = ("commit", node, folder.run, folder.fence, kind, step)
        return self._with_rows(world, self._platform.send(world.rows, message))

    # The network and the clock

    def _delayed(self, world: World, node: int, late: Late, name: str) -> Iterator[Move]:
        machine = world.machines[node]
        if self._may(world, Fault.LATE) and machine.late is None:
            after = _with_machine(world, node, machine._replace(late=late))
            yield self._disturbed(f"{name} with delay", after)

    def _network_moves(self, world: World, node: int, machine: Machine) -> Iterator[Move]:
        late = machine.late
        if late is None:
            return
        world = _with_machine(world, node, machine._replace(late=None))
        order = late.order
        if late.kind == "request":
            answer = self._platform.send(world.rows, late.message)
            is_renewal = late.message[0] == "renew"
            world = (
                self._renewed(world, node, late.claim, answer)
                if is_renewal
                else self._with_rows(world, answer)
            )
            yield Move(f"a late {late.message[0]} of {node}.{late.claim} arrives", world)
            order = "" if not is_renewal else "refused" if answer.refused else answer.reply
        for folder in machine.folders:
            waits = folder.stage in (Stage.SUPERVISED, Stage.ENDED) and not folder.frozen
            if order and folder.claim == late.claim and waits:
                after = self._after_reply(world, node, folder, late.since, order)
                yield Move(f"a late answer to {node}.{late.claim} arrives: {order}", after)

    def _tick(self, world: World) -> Iterator[Move]:
        """Time passes. Who can renew a lease does it in time, or else is disturbed."""
        for node, machine in enumerate(world.machines):
            if any(self._must_end_first(world, node, folder) for folder in machine.folders):
                return
        renewed = _renewed_in_time(world)
        after = _later(world, renewed)
        if after != world:
            yield Move("time passes", after)
        if self._may(world, Fault.LAPSE):
            for node, claim in sorted(renewed):
                name = f"time passes, and {claim} is not renewed"
                yield self._disturbed(name, _later(world, renewed - {(node, claim)}))

    # Sending

    def _sent(
        self, world: World, name: str, message: Message, *, fault: Fault | None = None
    ) -> Iterator[Move]:
        if fault is not None and not self._may(world, fault):
            return
        answer = self._platform.send(world.rows, message)
        if answer.rows != world.rows:
            after = self._with_rows(world, answer)
            yield Move(name, after) if fault is None else self._disturbed(name, after)

    def _with_rows(self, world: World, answer: Answer) -> World:
        if answer.rows == world.rows:
            return world
        ticks = {(node, claim): count for node, claim, count in world.seen}
        seen = tuple(
            sorted(
                (placed.node, placed.claim, ticks.get((placed.node, placed.claim), 0))
                for placed in self._platform.view(answer.rows).placed
                if placed.claim is not None
            )
        )
        return world._replace(rows=answer.rows, seen=seen)

    def _may(self, world: World, fault: Fault) -> bool:
        return world.faults_left > 0 and fault in self._faults

    def _disturbed(self, name: str, world: World) -> Move:
        return Move(name, world._replace(faults_left=world.faults_left - 1), repairs=False)


def _renewal(node: int, folder: Folder) -> Message:
    phases = {Progress.STEPPING: "running", Progress.EXPORTING: "completing"}
    ended = folder.stage is Stage.ENDED
    phase = "ended" if ended else phases.get(folder.progress, "starting")
    stalled = folder.rank if folder.hung and not ended else -1
    claim = claim_id(node, folder.claim)
    return ("renew", node, folder.run, claim, folder.fence, phase, stalled, folder.code)


def _started(world: World, node: int, folder: Folder) -> World:
    if folder.exports_only and folder.rank != 0:
        return _ended(world, node, folder, "finished")
    progress = Progress.EXPORTING if folder.exports_only else Progress.STARTED
    return _with(world, node, folder, trainer=True, progress=progress)


def _saved(world: World, node: int, folder: Folder) -> World:
    """The supervisor is ordered to save: only a trainer in steps has something to save, and does it with all ranks."""
    if folder.progress is Progress.STEPPING:
        return _with(world, node, folder, saving=True)
    return _ended(world, node, folder, "saved" if folder.progress is Progress.EXPORTING else "stopped")


def _trained(world: World, node: int, first: Folder) -> World:
    """All ranks have finished together; the first node exports."""
    for at, peer in _peers(world, first):
        if peer == first and at == node:
            world = _with(world, at, peer, progress=Progress.EXPORTING, saving=False)
        else:
            world = _ended(world, at, peer, "finished")
    return world


def _all_ended(world: World, folder: Folder, code: str) -> World:
    for at, peer in _peers(world, folder):
        world = _ended(world, at, peer, code)
    return world


def _peers(world: World, folder: Folder) -> list[tuple[int, Folder]]:
    """The live trainers of the attempt, each with its node."""
    return [
        (node, each)
        for node, machine in enumerate(world.machines)
        for each in machine.folders
        if each.trainer and (each.run, each.fence) == (folder.run, folder.fence)
    ]


def _ended(world: World, node: int, folder: Folder, code: str, stage: Stage = Stage.ENDED) -> World:
    after = folder._replace(
        stage=stage,
        trainer=False,
        code=folder.code or code,
        hung=False,
        saving=False,
        age=None,
    )
    return _replaced(world, node, folder, after)


def _lost(world: World, node: int, folder: Folder) -> World:
    lost = folder._replace(stage=Stage.LOST, trainer=False, frozen=False, hung=False, saving=False, age=None)
    return _replaced(world, node, folder, lost)


def _rebooted(folder: Folder) -> Folder:
    if folder.stage is Stage.UNCLAIMED:
        return folder
    return folder._replace(
        stage=Stage.LEFT,
        trainer=False,
        frozen=False,
        hung=False,
        saving=False,
        age=None,
        code=folder.code or "node_rebooted",
    )


def _renewed_in_time(world: World) -> frozenset[tuple[int, str]]:
    """Node and claim of the open placements whose lease is kept, by a renewal or by the next step of their agent."""
    is_open = {(node, claim) for node, claim, _ in world.seen}
    return frozenset(
        (node, name)
        for node, machine in enumerate(world.machines)
        for folder in machine.folders
        if (node, name := claim_id(node, folder.claim)) in is_open and _can_keep_lease(machine, folder)
    )


def _can_keep_lease(machine: Machine, folder: Folder) -> bool:
    if folder.stage in (Stage.SUPERVISED, Stage.ENDED):
        return not folder.frozen
    return machine.agent


def _later(world: World, renewed: frozenset[tuple[int, str]]) -> World:
    """A tick later."""
    machines = tuple(_older(node, machine, renewed) for node, machine in enumerate(world.machines))
    seen = tuple(
        (node, claim, ticks if (node, claim) in renewed else min(ticks + 1, LEASE_TICKS))
        for node, claim, ticks in world.seen
    )
    return world._replace(machines=machines, seen=seen)


def _older(node: int, machine: Machine, renewed: frozenset[tuple[int, str]]) -> Machine:
    folders = tuple(
        folder._replace(age=min(folder.age + 1, LEASE_TICKS))
        if folder.age is not None
        and folder.stage is Stage.SUPERVISED
        and (node, claim_id(node, folder.claim)) not in renewed
        else folder
        for folder in machine.folders
    )
    late = machine.late
    if late is not None:
        late = late._replace(since=min(late.since + 1, LEASE_TICKS))
    return machine._replace(folders=folders, late=late)


def _with(world: World, node: int, folder: Folder, **changes: Any) -> World:
    return _replaced(world, node, folder, folder._replace(**changes))


def _replaced(world: World, node: int, before: Folder, after: Folder) -> World:
    machine = world.machines[node]
    folders = tuple(after if folder == before else folder for folder in machine.folders)
    return _with_machine(world, node, machine._replace(folders=folders))


def _without(world: World, node: int, gone: Folder) -> World:
    machine = world.machines[node]
    folders = tuple(folder for folder in machine.folders if folder != gone)
    return _with_machine(world, node, machine._replace(folders=folders))


def _with_machine(world: World, node: int, machine: Machine) -> World:
    machines = world.machines
    return world._replace(machines=(*machines[:node], machine, *machines[node + 1 :]))
