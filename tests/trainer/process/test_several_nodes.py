"""One training whose ranks are started by two launchers, as on two nodes."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.jobs import (
    PATIENCE_SECONDS,
    events,
    losses,
    read_out,
    resume_from,
    run_trainer,
    trainer,
    write_job,
)
from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright_trainer.checkpoint.load import read_tensor, verify_files
from trainwright_trainer.process.export_job import export_job


def train_on_two_nodes(
    folder: Path, data: Path, job: dict[str, Any] | None = None, **sections: Any
) -> list[Path]:
    """Train a job whose two nodes have a rank each; returns the nodes' jobs."""
    jobs = jobs_of_two_nodes(folder, data, job, **sections)
    launched = [trainer("train", job_file) for job_file in jobs]
    for process in launched:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, errors.decode()
    return jobs


def jobs_of_two_nodes(
    folder: Path, data: Path, job: dict[str, Any] | None = None, **sections: Any
) -> list[Path]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = {"rendezvous": f"127.0.0.1:{server.getsockname()[1]}", "interface": "lo"}
    return [
        write_job(
            folder / f"node-{node}", data, nodes=2, job=(job or {}) | place | {"node_rank": node}, **sections
        )
        for node in range(2)
    ]


@pytest.fixture(scope="module")
def one_node(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    job_file = write_job(tmp_path_factory.mktemp("one"), data, ranks=2)
    assert run_trainer("train", job_file) == 0
    return job_file


@pytest.fixture(scope="module")
def two_nodes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return train_on_two_nodes(tmp_path_factory.mktemp("two"), data)


@pytest.mark.slow(target="layouts")
def test_two_nodes_compute_what_one_does(one_node: Path, two_nodes: list[Path]) -> None:
    assert losses(two_nodes[0]) == losses(one_node)
    assert losses(two_nodes[1]) == losses(one_node), "each node's agent can follow its training"


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    "sections",
    [
        {"parallelism": {"tensor": 2, "tensor_across_nodes": True}},
        {"parallelism": {"pipeline": 2}},
        {"parallelism": {"zero_stage": 1}},
        {"parallelism": {"zero_stage": 2}},
        {"parallelism": {"zero_stage": 3}},
        {"batch": {"document_mask": True}},
    ],
    ids=str,
)
def test_losses_are_the_same_whether_a_reader_or_each_rank_reads(
    tmp_path: Path, data: Path, sections: dict[str, Any]
) -> None:
    """The two ranks of one node have a reader; one rank on each of two nodes reads for itself."""
    shared = write_job(tmp_path / "one", data, ranks=2, **sections)
    assert run_trainer("train", shared) == 0
    alone = train_on_two_nodes(tmp_path / "two", data, **sections)[0]
    assert losses(shared) == losses(alone)
    held_out = [[line["values"] for line in events(job, "validation")] for job in (shared, alone)]
    assert held_out[0] == held_out[1]


@pytest.mark.slow(target="layouts")
def test_each_node_reports_its_end_and_its_own_ranks(two_nodes: list[Path]) -> None:
    for node, job_file in enumerate(two_nodes):
        assert read_out(job_file, "outcome.json")["code"] == "finished"
        assert {path.name for path in (job_file.parent / "out/logs").iterdir()} == {f"rank-{node}.log"}
        assert [event["step"] for event in events(job_file, "checkpoint_saved")] == [10, 20]


@pytest.mark.slow(target="layouts")
def test_the_nodes_write_one_checkpoint(
    tmp_path: Path, data: Path, one_node: Path, two_nodes: list[Path]
) -> None:
    """Each node has the files of its ranks and the same manifest; together they have the tensors of one node's checkpoint.

    The files differ: ranks of one node divide what they all have, and those of two nodes do not.
    """
    folders = [job_file.parent / "out/checkpoints/step-10" for job_file in two_nodes]
    first, second = ((folder / "manifest.json").read_bytes() for folder in folders)
    assert first == second
    manifest = CheckpointManifest.model_validate_json(first)

    whole = tmp_path / "step-10"
    whole.mkdir()
    for folder in folders:
        for file in folder.iterdir():
            shutil.copy(file, whole)
    verify_files(whole, manifest.files)
    assert {path.name for path in whole.iterdir()} == {
        *(file.name for file in manifest.files),
        "manifest.json",
    }

    of_one = one_node.parent / "out/checkpoints/step-10"
    expected = CheckpointManifest.model_validate_json((of_one / "manifest.json").read_bytes())
    assert manifest.tensors.keys() == expected.tensors.keys()
    for name, entry in expected.tensors.items():
        stored = read_tensor(whole, manifest, name, entry.shape)
        assert torch.equal(stored, read_tensor(of_one, expected, name, entry.shape)), name

    resumed = jobs_of_two_nodes(tmp_path / "resumed", data)
    points = [resume_from(whole, job_file.parent) for job_file in resumed]
    resumed = train_on_two_nodes(tmp_path / "resumed", data, job=points[0])
    assert losses(resumed[0]) == losses(one_node)[10:]


@pytest.mark.slow(target="layouts")
def test_a_node_verifies_the_files_that_it_fetched(tmp_path: Path, data: Path, one_node: Path) -> None:
    """It verifies its own copies of all ranks' files; the other node's copies may be intact."""
    jobs = jobs_of_two_nodes(tmp_path, data)
    good = one_node.parent / "out/checkpoints/step-10"
    damaged = shutil.copytree(good, tmp_path / "damaged")
    file = damaged / "tensors-0-00000.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    point = resume_from(good, jobs[0].parent)
    resume_from(damaged, jobs[1].parent)
    for job_file in jobs:
        job_file.write_text(json.dumps(json.loads(job_file.read_text()) | point))
    launched = [trainer("train", job_file) for job_file in jobs]
    for process in launched:
        process.communicate(timeout=PATIENCE_SECONDS)
    assert read_out(jobs[1], "failure-1.json")["code"] == "checkpoint_invalid"


@pytest.mark.slow(target="layouts")
def test_an_export_of_several_nodes_reads_the_fetched_checkpoint(
    tmp_path: Path, data: Path, two_nodes: list[Path], one_node: Path
) -> None:
    """``out/checkpoints`` has only this node's files of the last step."""
    shutil.copytree(two_nodes[0].parent / "out", tmp_path / "job/out")
    whole = one_node.parent / "out/checkpoints/step-20"
    job_file = write_job(
        tmp_path / "job", data, nodes=2, job=resume_from(whole, tmp_path / "job") | {"kind": "export"}
    )
    assert export_job(job_file) == 0
    assert run_trainer("export", one_node) == 0
    exported = [path / "out/export/model.safetensors" for path in (job_file.parent, one_node.parent)]
    assert exported[0].read_bytes() == exported[1].read_bytes()


@pytest.mark.slow(target="layouts")
def test_the_death_of_one_nodes_rank_ends_the_other(tmp_path: Path, data: Path) -> None:
    """The survivor reports the lost connection; only the node of the dead rank knows more."""
    endless = {"steps": 1_000_000, "warmup_steps": 4}
    jobs = jobs_of_two_nodes(tmp_path, data, schedule=endless)
    launched = [trainer("train", job_file) for job_file in jobs]
    try:
        while not events(jobs[1], "step"):
            assert launched[1].poll() is None
        launched[1].terminate()
        assert launched[1].wait(timeout=60) != 0
        assert launched[0].wait(timeout=60) != 0
    finally:
        for process in launched:
            process.kill()
            process.wait()
    assert read_out(jobs[0], "failure-0.json")["code"] == "rank_lost"


@pytest.mark.slow(target="layouts")
def test_a_node_number_beyond_the_number_of_nodes_is_refused(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data, nodes=2, job={"node_rank": 2})
    assert run_trainer("train", job_file) == 1
    assert "node_rank" in read_out(job_file, "failure-0.json")["message"]
