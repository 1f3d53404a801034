"""Checkpoints of a run on two nodes: each sends its own files, and the first commits what is complete."""

import json
from pathlib import Path

import pytest

from tests.agent.api import NODE_TOKEN, ScriptedApi, ScriptedRun
from tests.agent.folders import make_attempt, write_events
from tests.agent.machine import wait_for
from trainwright.contracts.checkpoint import digest_of
from trainwright.contracts.job_spec import JobSpec
from trainwright_agent.client import Backoff, Client
from trainwright_agent.shipping import checkpoint_queue
from trainwright_agent.shipping.checkpoint_queue import CheckpointQueue
from trainwright_agent.shipping.uploader import Uploader
from trainwright_agent.workspace import AttemptFolder

STEPS = (5, 10, 15)


class Node:
    """One of the run's two nodes, with the checkpoints of all steps."""

    def __init__(self, api: ScriptedApi, data: Path, rank: int) -> None:
        self.attempt: AttemptFolder = make_attempt(data)
        claim = self.attempt.granted_claim()
        assert claim is not None
        job: JobSpec = claim.job.model_copy(update={"nodes": 2, "node_rank": rank})
        self._own = f"part-{rank}.safetensors"
        write_events(self.attempt.path, *(self._save(step) for step in STEPS))
        self.queue = CheckpointQueue(
            self.attempt, job, lambda: Uploader(Client(api.url, NODE_TOKEN), "run_1", 1, None), lambda: 10**6
        )

    def file(self, step: int) -> Path:
        return self.attempt.path / "out" / "checkpoints" / f"step-{step}" / self._own

    def _save(self, step: int) -> dict[str, object]:
        self.file(step).parent.mkdir(parents=True)
        self.file(step).write_bytes(_content(step, self._own))
        names = [f"part-{rank}.safetensors" for rank in range(2)]
        files = [
            {"name": name, "bytes": len(_content(step, name)), "digest": digest_of(_content(step, name))}
            for name in names
        ]
        manifest = json.dumps(
            {
                "schema_version": 1,
                "kind": "state",
                "step": step,
                "files": files,
                "config_digest": "0" * 64,
                "code_version": "0",
            }
        ).encode()
        (self.file(step).parent / "manifest.json").write_bytes(manifest)
        line = {
            "type": "checkpoint_saved",
            "step": step,
            "folder": f"step-{step}",
            "bytes": 1,
            "seconds": 0.0,
        }
        return {**line, "digest": digest_of(manifest)}


def _content(step: int, name: str) -> bytes:
    return f"{name} of step {step}".encode()


@pytest.fixture
def run(api: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> ScriptedRun:
    monkeypatch.setattr(checkpoint_queue, "Backoff", lambda first, most: Backoff(0.01, 0.02))
    placed = api.place()
    placed.has_other_nodes = True
    placed.files["events.jsonl"] = 10**6
    return placed


def drained(*nodes: Node) -> bool:
    for node in nodes:
        node.queue.poll()
    return all(node.queue.is_drained() for node in nodes)


def committed(run: ScriptedRun) -> list[int]:
    return [commit["step"] for commit in run.commits]


@pytest.mark.parametrize("damaged_on", [0, 1])
def test_a_checkpoint_that_is_damaged_on_one_node_does_not_block_the_next(
    tmp_path: Path, api: ScriptedApi, run: ScriptedRun, damaged_on: int
) -> None:
    nodes = [Node(api, tmp_path / f"node-{rank}", rank) for rank in range(2)]
    nodes[damaged_on].file(5).write_bytes(b"something else")
    wait_for(lambda: drained(*nodes), "all checkpoints are sent or abandoned")
    assert sorted(committed(run)) == [10, 15]
    assert nodes[0].attempt.shipped_steps() == set(STEPS)


def test_a_checkpoint_waits_for_the_files_of_a_slow_node(
    tmp_path: Path, api: ScriptedApi, run: ScriptedRun
) -> None:
    first, second = (Node(api, tmp_path / f"node-{rank}", rank) for rank in range(2))
    for _ in range(3):
        first.queue.poll()
        wait_for(lambda: not first.queue.is_drained(), "the first node has tried")
    assert committed(run) == []
    wait_for(lambda: drained(first, second), "all checkpoints are sent")
    assert sorted(committed(run)) == list(STEPS)


def test_the_last_checkpoint_is_not_abandoned_while_another_node_may_send_it(
    tmp_path: Path, api: ScriptedApi, run: ScriptedRun
) -> None:
    first, second = (Node(api, tmp_path / f"node-{rank}", rank) for rank in range(2))
    second.file(15).write_bytes(b"something else")
    wait_for(
        lambda: not drained(first) and drained(second) and first.attempt.shipped_steps() == {5, 10},
        "two are stored",
    )
    assert sorted(committed(run)) == [5, 10]
    assert not drained(first), "the end of the other node decides about the last one"
