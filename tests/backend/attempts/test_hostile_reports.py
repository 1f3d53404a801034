"""Requests with a stolen node token. Numbers that the database cannot store are refused, characters that it cannot store are
removed from texts, and nothing causes a server error."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from httpx import Response

from tests.backend.scripted_agent import Scene, Work, inventory, losses
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import Outcome

HOSTILE_TEXT = ("\ud800", "a\0b", "x" * 100_000)
HOSTILE_NUMBERS = (2**70, -1, float("nan"))

EXIT = {"code": "checkpoint_invalid", "message": "it broke", "step": 3, "rank": 0, "sequences_read": 5}
EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "note", "message": "hello", "step": 3},
    {"type": "checkpoint_saved", "step": 3, "bytes": 5, "seconds": 1.0},
    {
        "type": "attempt_started",
        "attempt": 1,
        "resume_step": 0,
        "ranks": 2,
        "parameters": 5,
        "device": "a CPU",
    },
)
HARDWARE = {
    **{"cpu_utilization": 0.5, "memory_bytes": 1, "memory_total_bytes": 2},
    **{"disk_bytes": 1, "disk_total_bytes": 2},
    "gpus": [{"index": 0, "utilization": 0.1, "memory_bytes": 1, "power_watts": 1.0}],
    "ranks": [{"rank": 0, "cpu_cores": 1.0, "memory_bytes": 1}],
}


def changed(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """``body`` with each of its texts and numbers replaced by each hostile one."""
    for path, value in _leaves(body):
        for hostile in HOSTILE_TEXT if isinstance(value, str) else HOSTILE_NUMBERS:
            copy: Any = deepcopy(body)
            at = copy
            for part in path[:-1]:
                at = at[part]
            at[path[-1]] = hostile
            yield copy


def _leaves(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(body, dict | list):
        for key, value in body.items() if isinstance(body, dict) else enumerate(body):
            yield from _leaves(value, (*path, key))
    elif isinstance(body, str | int | float):
        yield path, body


def post(work: Work, what: str, body: dict[str, Any]) -> Response:
    """Send what an attacker could send: NaN and lone surrogates, which valid JSON does not contain."""
    return work.agent.client.post(
        f"/api/v1/agent/runs/{work.run_id}/{what}",
        content=json.dumps(body),
        headers={"Content-Type": "application/json"},
    )


def reports(work: Work) -> Iterator[tuple[str, dict[str, Any]]]:
    """Messages of a running attempt that do not end it."""
    claim = {"claim_id": work.claim.claim_id, "fence": work.claim.fence}
    state = {"fence": work.claim.fence, "kind": "state", "step": 3}
    yield "renew", {**claim, "phase": "running", "progress": "step 3", "exit": EXIT}
    yield "uploads", {**state, "files": [{"name": "a", "bytes": 1, "digest": "0" * 64}]}
    yield "checkpoints", {**state, "manifest_digest": "0" * 64, "events_offset": 1}
    yield "export-job", claim
    for event in EVENTS:
        yield "batches", work.batch([event])
    yield "batches", work.batch(metrics=[losses(4, 5)]) | {"hardware": HARDWARE}


@pytest.mark.slow(target="faults")
def test_no_report_causes_a_server_error(scene: Scene) -> None:
    work = scene.running()
    responses = [
        (what, body, post(work, what, body)) for what, sound in reports(work) for body in changed(sound)
    ]
    assert len(responses) > 150
    failed = [
        (what, str(body)[:500], response.text)
        for what, body, response in responses
        if response.status_code >= 500
    ]
    assert failed == []
    for page in ("", "/events", "/metrics", "/checkpoints"):
        assert scene.site.admin.get(f"{scene.runs}/{work.run_id}{page}").status_code == 200


@pytest.mark.slow(target="faults")
def test_no_inventory_causes_a_server_error(scene: Scene) -> None:
    sound = {"inventory": inventory(gpus=1), "hardware": HARDWARE, "busy_slots": {"cpu": [0]}}
    for body in changed(sound):
        response = scene.agent.client.post(
            "/api/v1/agent/heartbeat",
            content=json.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        assert response.status_code in (200, 422), (body, response.text)
        shown = scene.site.admin.get("/api/v1/nodes")
        assert shown.status_code == 200 and "NaN" not in shown.text and "Infinity" not in shown.text
    scene.agent.heartbeat(inventory=inventory())


def test_the_end_of_an_attempt_needs_a_possible_step_and_possible_sizes(scene: Scene) -> None:
    work = scene.running()
    claim = {"claim_id": work.claim.claim_id, "fence": work.claim.fence}
    for field in ("step", "rank", "sequences_read"):
        for hostile in HOSTILE_NUMBERS:
            response = post(work, "end", {**claim, "exit": EXIT | {field: hostile}, "offsets": {}})
            assert (response.status_code, field) == (
                422,
                response.json()["errors"][0]["field"].removeprefix("exit."),
            )
    for offsets in ({"events.jsonl": 2**70}, {"events.jsonl": -1}, {"x" * 300: 1}):
        response = post(work, "end", {**claim, "exit": EXIT, "offsets": offsets})
        assert response.status_code == 422
    asked = work.agent.client.get(f"/api/v1/agent/runs/{work.run_id}/offsets?attempt={2**70}")
    assert asked.status_code == 422
    assert (
        post(work, "end", {**claim, "exit": EXIT | {"message": "a\0\ud800"}, "offsets": {}}).status_code
        == 200
    )
    assert scene.state(work.run_id) in ("retry_wait", "failed")


def test_a_trainers_outcome_has_the_same_limits() -> None:
    assert Outcome(code=EndCode.CRASHED, message="", step=0, rank=0).step == 0
    for field in ("step", "rank"):
        with pytest.raises(ValueError, match="greater than or equal to 0"):
            Outcome.model_validate({"code": "crashed", "message": "", field: -1})
