"""The main job with real processes: upload → prepare → place → claim → train → watch → download → load."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.live import (
    PATIENT_TIMERS,
    Live,
    eventually,
    finished,
    live_agent,
    live_platform,
    marked_processes,
    series,
    small_spec,
    write_letters,
)
from trainwright.contracts.api.datasets import Dataset, PreparationState
from trainwright.contracts.api.runs import Run
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.run_state import RunState
from trainwright.contracts.series import FP8_SERIES, HARDWARE_SERIES, STORED_SERIES
from trainwright.transport.errors import ApiError
from trainwright_trainer.checkpoint.export import load_export


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(
        tmp_path_factory.mktemp("platform") / "data", PATIENT_TIMERS, measures_cpu=True
    ) as running:
        yield running


@pytest.fixture(scope="module")
def dataset(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    file = write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")
    with file.open("a") as out:
        out.write("not json\n")
    return live.team.upload("letters", [file])


def spec_of(dataset: Dataset, nodes: int) -> dict[str, Any]:
    """A run of two ranks on this many nodes."""
    data = {"dataset": dataset.id, "tokenizer": {"vocabulary": 512}, "validation_fraction": 0.1}
    resources = {"device": "cpu", "nodes": nodes, "slots_per_node": 2 // nodes}
    return small_spec(dataset, data=data, resources=resources)


@dataclass(frozen=True)
class Trained:
    """A run that has ended, and the steps that were streamed while it trained."""

    run: Run
    streamed: list[int]


@pytest.fixture(scope="module")
def trained(live: Live, dataset: Dataset) -> Trained:
    run = live.team.submit(spec_of(dataset, nodes=1))
    streamed = [step for points in live.team.stream_metrics(run.id) for step in points.steps]
    run = finished(live.team, run.id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    return Trained(run, streamed)


def test_a_run_goes_from_upload_to_a_checkpoint_that_transformers_loads(
    live: Live, trained: Trained, tmp_path: Path
) -> None:
    run = trained.run
    assert run.attempt == 1
    losses = series(live.team, run.id, "loss")
    assert list(losses) == list(range(1, 31))
    assert losses[30] < 0.8 * losses[1]
    assert set(range(1, 31)) <= set(trained.streamed)
    names = {item.name for item in live.team.metrics(run.id).series}
    documented = set(STORED_SERIES) - FP8_SERIES - HARDWARE_SERIES
    assert names - HARDWARE_SERIES == documented, "every documented series is stored"
    assert set(series(live.team, run.id, "validation_loss")) == {10, 20, 30}

    folder = live.team.download(run.id, tmp_path / "export")
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(folder)("Letter 3: the ship", return_tensors="pt").input_ids
    ours, tokenizer = load_export(folder)
    assert tokenizer.encode("Letter 3: the ship").ids == ids[0].tolist()
    with torch.inference_mode():
        assert (theirs(ids).logits - ours(ids)).abs().max() <= 1e-4
    assert not marked_processes(live.platform.folder.path)


def test_events_are_listed_in_order(live: Live, trained: Trained) -> None:
    run = trained.run
    events = live.team.events(run.id)
    states = [event.state for event in events if event.state is not None]
    assert states == [
        RunState.QUEUED,
        RunState.LEASED,
        RunState.STARTING,
        RunState.RUNNING,
        RunState.COMPLETING,
        RunState.SUCCEEDED,
    ]
    assert [event.sequence for event in events] == sorted({event.sequence for event in events})
    saved = [event.step for event in events if event.type == "checkpoint_saved"]
    assert saved == [10, 20, 30]
    assert {log.file for log in live.team.logs(run.id)} >= {"rank-0.log", "rank-1.log"}


@pytest.mark.slow(target="faults")
def test_two_nodes_train_with_the_same_losses_bit_for_bit(
    live: Live, dataset: Dataset, trained: Trained, tmp_path: Path
) -> None:
    with live_agent(live, tmp_path / "node", "other") as other:
        run = finished(live.team, live.team.submit(spec_of(dataset, nodes=2)).id)
        assert run.state is RunState.SUCCEEDED, run.sentence
        assert series(live.team, run.id, "loss") == series(live.team, trained.run.id, "loss")
        logs = {log.file for log in live.team.logs(run.id) if not log.file.startswith("launcher")}
        assert logs == {"rank-0.log", "rank-1.log"}, "each node ships those of its ranks"
        states = [item for item in live.team.checkpoints(run.id) if item.kind is CheckpointKind.STATE]
        assert max(item.step for item in states) == 30
        load_export(live.team.download(run.id, tmp_path / "export"))
        for folder in (live.platform.folder.path, other.data):
            eventually(lambda at=folder: not marked_processes(at), "no process is left")


def test_rejected_lines_are_listed_and_the_rest_is_used(
    live: Live, dataset: Dataset, trained: Trained
) -> None:
    # The upload's own preparation, and the one that the run requested.
    made = live.team.dataset(dataset.id).versions[0].preparations
    ready = [item for item in made if item.state is PreparationState.READY]
    assert ready and {(item.documents, item.rejected) for item in ready} == {(200, 1)}
    (rejected,) = live.team.rejected_documents(dataset.id, 1)
    assert (rejected.file, rejected.line) == ("letters.jsonl", 201)


@pytest.mark.slow(target="faults")
def test_a_running_run_uses_quota_cannot_be_deleted_and_leaves_nothing_when_cancelled(
    live: Live, dataset: Dataset
) -> None:
    """This run occupies both slots of the node. Other runs wait, and only those that can never fit are refused."""
    long = small_spec(dataset, schedule={"steps": 100_000, "warmup_steps": 5})
    run = live.team.submit(long)
    eventually(lambda: live.team.run(run.id).summary.step >= 3, "the run makes steps", 60)
    _check_limits(live, long)
    with pytest.raises(ApiError) as refused:
        live.team.delete_run(run.id)
    assert refused.value.status == 409

    eventually(lambda: live.team.checkpoints(run.id), "its first checkpoint is saved", 60)
    live.team.cancel(run.id)
    run = finished(live.team, run.id, 30)
    assert run.state is RunState.CANCELLED
    eventually(lambda: not marked_processes(live.platform.folder.path), "its processes are gone", 10)
    eventually(lambda: _free_slots(live) == 2, "its slots are free", 10)
    assert {quota.used for quota in live.team.show().quota} == {0}

    objects = live.platform.folder.path / "objects"
    before = _bytes_below(objects)
    live.team.delete_run(run.id)
    eventually(lambda: _bytes_below(objects) < before, "its bytes are gone")
    with pytest.raises(ApiError) as gone:
        live.team.run(run.id)
    assert gone.value.status == 404


def _check_limits(live: Live, spec: dict[str, Any]) -> None:
    """More runs than the team may use slots for wait."""
    queued = [live.team.submit(spec).id for _ in range(5)]
    eventually(lambda: "needs 2 slots" in live.team.run(queued[0]).sentence, "it shows what it waits for", 30)
    for run_id in queued:
        live.team.cancel(run_id)
    for run_id in queued:
        assert finished(live.team, run_id, 40).state is RunState.CANCELLED


def test_more_slots_than_any_node_has_is_refused_at_the_field(live: Live, dataset: Dataset) -> None:
    spec = small_spec(dataset, resources={"device": "cpu", "slots_per_node": 4})
    spec["batch"]["global_sequences"] = 16
    with pytest.raises(ApiError) as refused:
        live.team.submit(spec)
    assert [problem.field for problem in refused.value.problems] == ["resources.slots_per_node"]


def _free_slots(live: Live) -> int:
    return live.client.nodes()[0].slots_free["cpu"]


def _bytes_below(folder: Path) -> int:
    """Size of the files. Some may be deleted during the count."""
    found = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found += (Path(path) / name).stat().st_size
    return found
