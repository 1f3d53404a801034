"""The model check's machines: agents, supervisors, trainers, and a network that loses, delays and repeats messages.

Simplified: a supervisor fetches nothing; a message is processed when it is sent, unless it is late; a node
has at most one late message; ranks finish together. The clock ticks twice in a lease.
"""

from collections.abc import Iterator

from tests.backend.attempts.model_check import changes
from tests.backend.attempts.model_check.platform import (
    LEASE_TICKS,
    STEPS,
    BrokenRuleError,
    Message,
    Platform,
    Response,
)
from tests.backend.attempts.model_check.supervisor_lease import SupervisorLeases
from tests.backend.attempts.model_check.world import (
    ALL_RULES,
    Fault,
    Folder,
    Late,
    Machine,
    Move,
    Progress,
    Rules,
    Stage,
    World,
    claim_id,
)
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_agent.supervisor.lease import LeaseEnd


class Machines:
    """Generates the moves of a world.

    Args:
        faults: the kinds of disturbances that may happen.
        checks_slots: whether a process on a free slot is already an error. Otherwise the check continues until the slot
            has led to two live attempts.
    """

    def __init__(
        self,
        platform: Platform,
        leases: SupervisorLeases,
        rules: Rules = ALL_RULES,
        faults: frozenset[Fault] = frozenset(Fault),
        *,
        checks_slots: bool = True,
    ) -> None:
        self._platform, self._leases, self._rules, self._faults = platform, leases, rules, faults
        self._checks_slots = checks_slots

    def moves(self, world: World) -> Iterator[Move]:
        """All moves that may happen next."""
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
            yield from self._user_requests(world, index, run.state)
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

    def _user_requests(self, world: World, run: int, state: RunState) -> Iterator[Move]:
        if Fault.USER not in self._faults or state in FINAL:
            return
        for ask in sorted(world.asks_left):
            if ask == "resume" and state is not RunState.PAUSED:
                continue
            response = self._platform.send(world.rows, (ask, run))
            if response.rows != world.rows:
                after = self._with_rows(world, response)._replace(asks_left=world.asks_left - {ask})
                yield Move(f"{ask} run {run}", after, repairs=False)

    # Agents

    def _agent_moves(self, world: World, node: int, machine: Machine) -> Iterator[Move]:
        if not machine.agent:
            yield Move(
                f"agent {node} starts", changes.with_machine(world, node, machine._replace(agent=True))
            )
            return
        if any(folder.stage is Stage.LOST for folder in machine.folders):
            folders = tuple(
                folder._replace(stage=Stage.LEFT, trainer=False, code="supervisor_lost")
                if folder.stage is Stage.LOST
                else folder
                for folder in machine.folders
            )
            name = f"agent {node} ends lost attempts"
            yield Move(name, changes.with_machine(world, node, machine._replace(folders=folders)))
        yield from self._heartbeats(world, node, machine)
        if self._may(world, Fault.AGENT) and (machine.folders or self._is_placed(world, node)):
            yield self._disturbed(
                f"agent {node} dies", changes.with_machine(world, node, machine._replace(agent=False))
            )
        if self._may(world, Fault.REBOOT) and machine.folders:
            folders = tuple(changes.rebooted(folder) for folder in machine.folders)
            rebooted = machine._replace(agent=False, folders=folders)
            yield self._disturbed(f"node {node} restarts", changes.with_machine(world, node, rebooted))

    def _is_placed(self, world: World, node: int) -> bool:
        return any(placed.node == node for placed in self._platform.view(world.rows).placed)

    def _heartbeats(self, world: World, node: int, machine: Machine) -> Iterator[Move]:
        """The response lists a run that is not claimed: the agent creates a folder with a new claim id.

        While the platform would refuse the claim, the agent would delete the folder and create the next one. These
        claims change nothing, and have ever new ids, so they are left out.
        """
        view = self._platform.view(world.rows)
        for placed in view.placed:
            waits = view.runs[placed.run].state in (RunState.QUEUED, RunState.LEASED)
            if placed.claim is None and (not waits or node in view.quarantined):
                continue
            waiting = any(
                folder.run == placed.run and folder.stage is Stage.UNCLAIMED for folder in machine.folders
            )
            if placed.node != node or waiting:
                continue
            created = machine.created + 1
            folders = (*machine.folders, Folder(placed.run, created))
            after = changes.with_machine(world, node, machine._replace(folders=folders, created=created))
            if placed.claim is None:
                yield Move(f"agent {node} learns of run {placed.run}", after)
            elif self._may(world, Fault.STALE_HEARTBEAT):
                yield self._disturbed(f"agent {node} reads an old response about run {placed.run}", after)

    # Claims and supervisors

    def _attempt_moves(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        if folder.stage is Stage.UNCLAIMED:
            if world.machines[node].agent:
                yield from self._claims(world, node, folder)
            return
        if folder.stage in (Stage.SUPERVISED, Stage.ENDED):
            if folder.frozen:
                yield Move(
                    f"supervisor {node} continues", changes.with_fields(world, node, folder, frozen=False)
                )
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
        response = self._platform.send(world.rows, message)
        reached = self._with_rows(world, response)
        if response.refused:
            yield Move(f"{name}: refused", changes.without(reached, node, folder))
        else:
            fence, rank, exports_only = response.reply
            started = folder._replace(
                stage=Stage.SUPERVISED, fence=fence, rank=rank, exports_only=exports_only
            )
            if not self._rules.renewal_first:
                started = started._replace(trainer=True, progress=Progress.STARTED, age=0)
            yield Move(name, changes.replaced(reached, node, folder, started))
            if response.rows != world.rows:
                yield Move(f"{name}, and the response is lost", reached)
        yield from self._delayed(world, node, Late("request", folder.claim, message), name)

    def _renewals(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        message = changes.renewal(node, folder)
        name = f"supervisor {node}.{folder.claim} renews"
        response = self._platform.send(world.rows, message)
        reached = self._renewed(world, node, folder.claim, response)
        order = "refused" if response.refused else response.reply
        after = self._after_reply(reached, node, folder, 0, order)
        yield Move(f"{name}: {order}", after)
        if reached != world:
            yield Move(f"{name}, and the response is lost", reached)
        if reached.machines[node].late is None and not response.refused:
            late = Late("reply", folder.claim, (), order)
            yield from self._delayed(reached, node, late, f"{name}: {order},")
        yield from self._delayed(world, node, Late("request", folder.claim, message), name)

    def _renewed(self, world: World, node: int, claim: int, response: Response) -> World:
        """The reaper sees that a renewal was acknowledged."""
        after = self._with_rows(world, response)
        if response.refused:
            return after
        name = claim_id(node, claim)
        seen = tuple((n, c, 0 if (n, c) == (node, name) else ticks) for n, c, ticks in after.seen)
        return after._replace(seen=seen)

    def _after_reply(self, world: World, node: int, folder: Folder, since: int, order: str) -> World:
        """The supervisor follows the order, if its lease lets it."""
        if order == "refused":
            return changes.ended(world, node, folder, "lease_expired", Stage.LEFT)
        held = self._leases.after_reply(folder.age, since, order)
        if held.end is LeaseEnd.RELEASED:
            code = "lease_expired" if folder.stage is Stage.SUPERVISED else folder.code
            return changes.ended(world, node, folder, code, Stage.LEFT)
        if not held.order or held.end is not None:
            return world
        if folder.stage is Stage.ENDED:
            return world
        renewed = folder._replace(age=held.age)
        world = changes.replaced(world, node, folder, renewed)
        if order == "kill":
            return changes.ended(world, node, renewed, "stopped")
        if order == "save":
            return changes.saved(world, node, renewed)
        if order == "go" and renewed.progress is Progress.WAITING:
            return changes.started(world, node, renewed)
        return world

    def _deadline(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        if not self._leases.is_expired(folder.age):
            return
        if not folder.frozen and self._rules.supervisor_fences:
            yield Move(f"supervisor {node} fences itself", changes.ended(world, node, folder, "self_fenced"))
        elif folder.frozen and self._rules.has_guard:
            yield Move(f"guard {node} kills the supervisor", changes.lost(world, node, folder))
        elif self._rules.watchdog and world.machines[node].agent:
            yield Move(f"agent {node} kills the supervisor", changes.lost(world, node, folder))

    def _must_end_first(self, world: World, node: int, folder: Folder) -> bool:
        """Whether time cannot pass before the attempt's processes have been killed."""
        return (
            folder.stage is Stage.SUPERVISED
            and self._leases.is_expired(folder.age)
            and any(True for _ in self._deadline(world, node, folder))
        )

    # Trainers

    def _trainer_moves(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        peers = changes.peers(world, folder)
        nodes = self._platform.view(world.rows).runs[folder.run].nodes
        complete = len(peers) == nodes and not any(peer.hung for _, peer in peers)
        together = complete and folder.rank == 0
        if folder.progress is Progress.STARTED and complete:
            yield Move(
                f"trainer {node} steps", changes.with_fields(world, node, folder, progress=Progress.STEPPING)
            )
        waits_for_hung = folder.progress is Progress.STARTED and any(peer.hung for _, peer in peers)
        if waits_for_hung and not folder.frozen and self._rules.limits_start:
            timed_out = changes.ended(world, node, folder, "start_timeout")
            yield Move(f"supervisor {node} ends a start that takes too long", timed_out)
        misses_another = len(peers) < nodes and folder.progress in (Progress.STARTED, Progress.STEPPING)
        if (
            misses_another
            and not folder.frozen
            and any(each.progress is Progress.STEPPING for _, each in peers)
        ):
            yield Move(f"rank on node {node} misses another", changes.ended(world, node, folder, "rank_lost"))
        steps = all(peer.progress is Progress.STEPPING for _, peer in peers)
        if together and steps and not any(peer.frozen for _, peer in peers):
            if folder.saving:
                yield Move(f"run {folder.run} saves", changes.all_ended(world, folder, "saved"))
            yield Move(f"run {folder.run} is trained", changes.trained(world, node, folder))
        is_stored = self._platform.view(world.rows).runs[folder.run].has_last_checkpoint
        if folder.progress is Progress.EXPORTING and is_stored and not folder.frozen:
            yield Move(f"run {folder.run} is exported", changes.ended(world, node, folder, "finished"))

    # Disturbances of an attempt

    def _harm(self, world: World, node: int, folder: Folder) -> Iterator[Move]:
        if self._may(world, Fault.SUPERVISOR):
            yield self._disturbed(
                f"supervisor {node}.{folder.claim} is killed", self._killed(world, node, folder)
            )
        if folder.stage is not Stage.SUPERVISED:
            return
        if self._may(world, Fault.FREEZE) and not folder.frozen:
            yield self._disturbed(
                f"supervisor {node} is stopped", changes.with_fields(world, node, folder, frozen=True)
            )
        if self._may(world, Fault.CRASH) and folder.trainer and not folder.frozen:
            yield self._disturbed(
                f"a rank on node {node} crashes", changes.ended(world, node, folder, "crashed")
            )
        starts_or_steps = folder.progress in (Progress.STARTED, Progress.STEPPING)
        if self._may(world, Fault.HANG) and folder.trainer and starts_or_steps and not folder.hung:
            hung = world
            for at, peer in changes.peers(world, folder):
                hung = changes.with_fields(hung, at, peer, hung=True)
            yield self._disturbed(f"run {folder.run} hangs", hung)

    def _killed(self, world: World, node: int, folder: Folder) -> World:
        if folder.stage is Stage.ENDED:
            return changes.replaced(world, node, folder, folder._replace(stage=Stage.LEFT, frozen=False))
        trainer = folder.trainer and not self._rules.dies_with_supervisor
        lost = folder._replace(
            stage=Stage.LOST, trainer=trainer, frozen=False, hung=False, saving=False, age=None
        )
        return changes.replaced(world, node, folder, lost)

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
        response = self._platform.send(world.rows, message)
        reached = self._with_rows(world, response)
        yield Move(f"{name}: {response.refused or response.reply}", changes.without(reached, node, folder))
        if reached != world:
            yield Move(f"{name}, and the response is lost", reached)
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
            after = changes.with_machine(world, node, machine._replace(late=late))
            yield self._disturbed(f"{name} with delay", after)

    def _network_moves(self, world: World, node: int, machine: Machine) -> Iterator[Move]:
        late = machine.late
        if late is None:
            return
        world = changes.with_machine(world, node, machine._replace(late=None))
        order = late.order
        if late.kind == "request":
            response = self._platform.send(world.rows, late.message)
            is_renewal = late.message[0] == "renew"
            world = (
                self._renewed(world, node, late.claim, response)
                if is_renewal
                else self._with_rows(world, response)
            )
            yield Move(f"a late {late.message[0]} of {node}.{late.claim} arrives", world)
            order = "" if not is_renewal else "refused" if response.refused else response.reply
        for folder in machine.folders:
            waits = folder.stage in (Stage.SUPERVISED, Stage.ENDED) and not folder.frozen
            if order and folder.claim == late.claim and waits:
                after = self._after_reply(world, node, folder, late.since, order)
                yield Move(f"a late response to {node}.{late.claim} arrives: {order}", after)

    def _tick(self, world: World) -> Iterator[Move]:
        """Time passes. Each supervisor that can renew its lease does so in time, or the move is a disturbance."""
        for node, machine in enumerate(world.machines):
            if any(self._must_end_first(world, node, folder) for folder in machine.folders):
                return
        renewed = changes.renewed_in_time(world)
        after = changes.later(world, renewed)
        if after != world:
            yield Move("time passes", after)
        if self._may(world, Fault.LAPSE):
            for node, claim in sorted(renewed):
                name = f"time passes, and {claim} is not renewed"
                yield self._disturbed(name, changes.later(world, renewed - {(node, claim)}))

    # Sending

    def _sent(
        self, world: World, name: str, message: Message, *, fault: Fault | None = None
    ) -> Iterator[Move]:
        if fault is not None and not self._may(world, fault):
            return
        response = self._platform.send(world.rows, message)
        if response.rows != world.rows:
            after = self._with_rows(world, response)
            yield Move(name, after) if fault is None else self._disturbed(name, after)

    def _with_rows(self, world: World, response: Response) -> World:
        if response.rows == world.rows:
            return world
        ticks = {(node, claim): count for node, claim, count in world.seen}
        seen = tuple(
            sorted(
                (placed.node, placed.claim, ticks.get((placed.node, placed.claim), 0))
                for placed in self._platform.view(response.rows).placed
                if placed.claim is not None
            )
        )
        return world._replace(rows=response.rows, seen=seen)

    def _may(self, world: World, fault: Fault) -> bool:
        return world.faults_left > 0 and fault in self._faults

    def _disturbed(self, name: str, world: World) -> Move:
        return Move(name, world._replace(faults_left=world.faults_left - 1), repairs=False)
