"""Row F10 of the fault table: disks that are full on a node and on the server."""

import itertools
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.disturbed_run import (
    LONG_FAULTS,
    DisturbedRun,
    check_equal,
    reference_losses,
)
from tests.faults.rows import FaultRow
from tests.faults.submissions import submission_codes
from tests.live import (
    SCALED_TIMERS,
    Live,
    end_runs,
    eventually,
    live_agent,
    live_platform,
    release_nodes,
    small_spec,
    write_letters,
)
from trainwright.client import TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.transport.errors import ApiError

pytestmark = pytest.mark.namespaces  # mounting needs root, as network namespaces do

TIMERS = SCALED_TIMERS | {"lease_seconds": 60.0, "margin_seconds": 20.0, "start_seconds": 240.0}
SEED = 20
FULL_SECONDS = 5.0


@dataclass(frozen=True)
class Disk:
    """A small file system, in memory."""

    path: Path

    @contextmanager
    def full(self) -> Iterator[None]:
        """Without a free byte, for the block."""
        filler = self.path / "filler"
        try:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            yield
        finally:
            filler.unlink()


@contextmanager
def disk(path: Path, mebibytes: int) -> Iterator[Disk]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", path], check=True)
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@dataclass(frozen=True)
class Scene:
    """A platform and a node, each with a disk of its own."""

    live: Live
    server_disk: Disk
    node_disk: Disk
    dataset: Dataset
    undisturbed: dict[int, float]
    key: str
    """An API key of the team's owner."""

    @property
    def team(self) -> TeamClient:
        return self.live.team


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("disks")
    with (
        disk(folder / "server", 600) as server_disk,
        disk(folder / "node", 100) as node_disk,
        live_platform(server_disk.path / "data", TIMERS) as live,
    ):
        dataset = live.team.upload("letters", [write_letters(folder / "letters.jsonl")])
        (own,) = live.client.nodes()
        live.client.set_draining(own.id, True)
        key = live.client.create_key("full disks").secret
        with live_agent(live, node_disk.path / "agent", "small"):
            undisturbed = reference_losses(live.team, dataset)
            yield Scene(live, server_disk, node_disk, dataset, undisturbed, key)


def fill_the_node(scene: Scene, row: FaultRow, drawn: random.Random) -> None:
    """A checkpoint, or the trainer's events, cannot be written."""
    run = DisturbedRun.submit(scene.team, scene.dataset, LONG_FAULTS)
    run.wait_for_step(1, drawn)
    with scene.node_disk.full():
        eventually(lambda: run.reasons()[0] is not None, "the attempt ends", 120)
        assert run.reasons()[0] == "disk_full", run.reasons()
    freed = time.monotonic()
    release_nodes(scene.live)
    run.wait_for_step(2, drawn)  # whichever attempt trains then
    row.recovered(freed)
    assert scene.team.metrics(run.id).attempts[-1].resume_step > 0, "the checkpoint before is valid"
    check_equal(run.losses_so_far(), scene.undisturbed)


def fill_the_server(scene: Scene, row: FaultRow, drawn: random.Random) -> None:
    """The database cannot be written, while a run trains."""
    run = DisturbedRun.submit(scene.team, scene.dataset, LONG_FAULTS)
    before = run.wait_for_step(1, drawn)
    with scene.server_disk.full():
        codes = submission_codes(scene.live, scene.key, small_spec(scene.dataset), FULL_SECONDS)
    freed = time.monotonic()
    check_refused(codes)
    scene.team.submit(small_spec(scene.dataset))
    run.wait_until_it_trains(attempt=1, beyond=before.summary.step)
    row.recovered(freed)
    check_equal(run.losses_so_far(), scene.undisturbed)


def check_refused(codes: list[int]) -> None:
    """Fail unless the server said that it is busy, and nothing worse."""
    assert set(codes) <= {201, 503}, codes
    assert 503 in codes, codes


def fill_the_server_under_an_upload(scene: Scene, row: FaultRow, drawn: random.Random) -> None:
    """An upload is not accepted, and is complete once there is space."""
    file = write_letters(scene.server_disk.path.parent / f"letters-{drawn.random()}.jsonl", documents=50_000)
    with ThreadPoolExecutor(1) as pool:
        with scene.server_disk.full():
            upload = pool.submit(scene.team.upload, file.stem, [file])
            time.sleep(FULL_SECONDS)
            is_accepted = upload.done() and upload.exception() is None
        freed = time.monotonic()
        try:
            dataset = upload.result()
        except ApiError as refused:
            assert refused.status in (503, 507), refused
            dataset = scene.team.upload(file.stem, [file])
    row.recovered(freed)
    assert not is_accepted
    assert dataset.versions[0].bytes == file.stat().st_size


FAULTS: dict[str, Callable[[Scene, FaultRow, random.Random], None]] = {
    "node": fill_the_node,
    "database": fill_the_server,
    "upload": fill_the_server_under_an_upload,
}


@pytest.mark.fault_row(name="F10", trials=9, long=15)
def test_full_disks_cost_time_only(row: FaultRow, scene: Scene) -> None:
    drawn = random.Random(SEED)
    for kind in itertools.islice(itertools.cycle(FAULTS), row.count):
        with row.trial(kind):
            FAULTS[kind](scene, row, drawn)
        end_runs(scene.team)
    with row.control():
        check_refused(submission_codes(scene.live, scene.key, small_spec(scene.dataset), seconds=0.1))
    end_runs(scene.team)
