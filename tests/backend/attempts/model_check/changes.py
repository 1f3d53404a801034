"""The effects of events on a world of the model check. Each function returns the world after its event."""

from typing import Any

from tests.backend.attempts.model_check.platform import LEASE_TICKS, Message
from tests.backend.attempts.model_check.world import Folder, Machine, Progress, Stage, World, claim_id


def renewal(node: int, folder: Folder) -> Message:
    phases = {Progress.STEPPING: "running", Progress.EXPORTING: "completing"}
    ended = folder.stage is Stage.ENDED
    phase = "ended" if ended else phases.get(folder.progress, "starting")
    stalls = folder.hung and folder.progress is Progress.STEPPING and not ended
    stalled = folder.rank if stalls else -1
    claim = claim_id(node, folder.claim)
    return ("renew", node, folder.run, claim, folder.fence, phase, stalled, folder.code)


def started(world: World, node: int, folder: Folder) -> World:
    if folder.exports_only and folder.rank != 0:
        return ended(world, node, folder, "finished")
    progress = Progress.EXPORTING if folder.exports_only else Progress.STARTED
    return with_fields(world, node, folder, trainer=True, progress=progress)


def saved(world: World, node: int, folder: Folder) -> World:
    """The supervisor is ordered to save. Only a trainer in steps has something to save, and all its ranks save
    together."""
    if folder.progress is Progress.STEPPING:
        return with_fields(world, node, folder, saving=True)
    return ended(world, node, folder, "saved" if folder.progress is Progress.EXPORTING else "stopped")


def trained(world: World, node: int, first: Folder) -> World:
    """All ranks have finished together; the first node exports."""
    for at, peer in peers(world, first):
        if peer == first and at == node:
            world = with_fields(world, at, peer, progress=Progress.EXPORTING, saving=False)
        else:
            world = ended(world, at, peer, "finished")
    return world


def all_ended(world: World, folder: Folder, code: str) -> World:
    for at, peer in peers(world, folder):
        world = ended(world, at, peer, code)
    return world


def peers(world: World, folder: Folder) -> list[tuple[int, Folder]]:
    """The live trainers of the attempt, each with its node."""
    return [
        (node, each)
        for node, machine in enumerate(world.machines)
        for each in machine.folders
        if each.trainer and (each.run, each.fence) == (folder.run, folder.fence)
    ]


def ended(world: World, node: int, folder: Folder, code: str, stage: Stage = Stage.ENDED) -> World:
    after = folder._replace(
        stage=stage,
        trainer=False,
        code=folder.code or code,
        hung=False,
        saving=False,
        age=None,
    )
    return replaced(world, node, folder, after)


def lost(world: World, node: int, folder: Folder) -> World:
    lost = folder._replace(stage=Stage.LOST, trainer=False, frozen=False, hung=False, saving=False, age=None)
    return replaced(world, node, folder, lost)


def rebooted(folder: Folder) -> Folder:
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


def renewed_in_time(world: World) -> frozenset[tuple[int, str]]:
    """Node and claim of the open placements whose lease is extended, by a renewal or by the next step of their
    agent."""
    is_open = {(node, claim) for node, claim, _ in world.seen}
    return frozenset(
        (node, name)
        for node, machine in enumerate(world.machines)
        for folder in machine.folders
        if (node, name := claim_id(node, folder.claim)) in is_open and can_keep_lease(machine, folder)
    )


def can_keep_lease(machine: Machine, folder: Folder) -> bool:
    if folder.stage in (Stage.SUPERVISED, Stage.ENDED):
        return not folder.frozen
    return machine.agent


def later(world: World, renewed: frozenset[tuple[int, str]]) -> World:
    """A tick later."""
    machines = tuple(older(node, machine, renewed) for node, machine in enumerate(world.machines))
    seen = tuple(
        (node, claim, ticks if (node, claim) in renewed else min(ticks + 1, LEASE_TICKS))
        for node, claim, ticks in world.seen
    )
    return world._replace(machines=machines, seen=seen)


def older(node: int, machine: Machine, renewed: frozenset[tuple[int, str]]) -> Machine:
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


def with_fields(world: World, node: int, folder: Folder, **changes: Any) -> World:
    return replaced(world, node, folder, folder._replace(**changes))


def replaced(world: World, node: int, before: Folder, after: Folder) -> World:
    machine = world.machines[node]
    folders = tuple(after if folder == before else folder for folder in machine.folders)
    return with_machine(world, node, machine._replace(folders=folders))


def without(world: World, node: int, gone: Folder) -> World:
    machine = world.machines[node]
    folders = tuple(folder for folder in machine.folders if folder != gone)
    return with_machine(world, node, machine._replace(folders=folders))


def with_machine(world: World, node: int, machine: Machine) -> World:
    machines = world.machines
    return world._replace(machines=(*machines[:node], machine, *machines[node + 1 :]))
