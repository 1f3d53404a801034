"""Batches, curves and live points: every step has its metrics once, even if messages are lost, repeated or rewound."""

import json
import math
import random
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event as hooks
from sqlalchemy import select

from tests.backend.scripted_agent import Scene, Work, losses, stream_events
from trainwright_backend.core.ids import parse_id
from trainwright_backend.core.sse import ServerEvent
from trainwright_backend.metrics import metric_stream
from trainwright_backend.metrics.curves import Curve
from trainwright_backend.metrics.metric_stream import MetricStreamReader
from trainwright_backend.metrics.reading import read_curves
from trainwright_backend.metrics.tables import MetricChunk


def curve(scene: Scene, run_id: str, name: str = "loss", **query: Any) -> dict[int, float]:
    metrics = scene.site.admin.get(f"{scene.runs}/{run_id}/metrics", params={"names": name} | query).json()
    [series] = metrics["series"] or [{"steps": [], "values": []}]
    assert len(set(series["steps"])) == len(series["steps"])
    return dict(zip(series["steps"], series["values"], strict=True))


def follow(scene: Scene, run_id: str, cursor: str = "") -> list[dict[str, Any]]:
    """All events of the stream of a run that has ended."""
    headers = {"Last-Event-ID": cursor} if cursor else {}
    response = scene.site.admin.get(f"{scene.runs}/{run_id}/metrics/stream", headers=headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    return stream_events(response.text)


def points_of(events: list[dict[str, Any]], name: str = "loss") -> dict[int, float]:
    """The points that a follower has at the end, after applying every rewind."""
    kept: dict[int, float] = {}
    for event in events:
        if event["event"] == "rewind":
            kept = {step: value for step, value in kept.items() if step <= event["data"]["step"]}
        else:
            pairs = zip(event["data"]["steps"], event["data"]["series"].get(name, []), strict=False)
            assert not kept.keys() & set(event["data"]["steps"]) or name not in event["data"]["series"]
            kept.update(pairs)
    return kept


def test_batches_count_once_and_in_order(scene: Scene) -> None:
    work = scene.start()
    work.order("starting")
    work.begin()
    first = work.batch(metrics=[losses(1, 3)])
    assert work.send(first).status_code == 200
    after_first = work.offset
    second = work.batch(metrics=[losses(4, 6)])
    later = {**second, "offset": second["next_offset"], "next_offset": second["next_offset"] + 50}
    for wrong in (first, later, {**second, "offset": after_first - 1}):
        refused = work.send(wrong)
        assert (refused.status_code, refused.json()["code"]) == (409, "wrong_offset")
        assert refused.json()["offset"] == after_first
    assert work.send(second).status_code == 200
    assert curve(scene, work.run_id) == {s: 1 / s for s in range(1, 7)}
    offsets = scene.agent.client.get(f"/api/v1/agent/runs/{work.run_id}/offsets?attempt=1").json()["files"]
    assert offsets == {"events.jsonl": work.offset}


def test_a_rewind_leaves_no_gap_and_no_duplicate(scene: Scene) -> None:
    work = scene.running(last_step=2_345, steps=5_000)
    live = {step: 1 / step for step in range(1, 2_346)}
    assert curve(scene, work.run_id) == live
    with scene.database.read() as session:
        assert sorted(session.scalars(select(MetricChunk.n))) == 2 * [345] + 4 * [1_000]
    before = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics").json()["cursor"]
    work.ended("crashed")
    work = scene.again(work.run_id)
    work.begin(resume_step=1_500)
    shown = scene.show(work.run_id)["summary"]
    assert (shown["step"], shown["values"]["loss"], shown["attempt"]) == (1_500, 1 / 1_500, 2)
    work.step(1_501, 1_600, scale=7.0)
    kept = {step: 1 / step for step in range(1, 1_501)} | {step: 7 / step for step in range(1_501, 1_601)}
    assert curve(scene, work.run_id) == kept
    work.ended("crashed")
    work = scene.again(work.run_id)
    work.begin(resume_step=0)
    assert curve(scene, work.run_id) == {}
    work.step(1, 1_005, scale=2.0)
    again = {step: 2 / step for step in range(1, 1_006)}
    assert curve(scene, work.run_id) == again
    assert curve(scene, work.run_id, after_step=1_000) == {s: 2 / s for s in range(1_001, 1_006)}
    scene.cancel(work.run_id)
    work.order("ended")
    events = follow(scene, work.run_id, before)
    assert events[0] == {"event": "rewind", "data": {"step": 0}}
    assert points_of(events) == again
    assert points_of(follow(scene, work.run_id)) == again
    assert points_of(follow(scene, work.run_id, "1:7")) == again, "an unknown cursor restarts the stream"


@pytest.mark.both_databases
def test_a_pack_between_two_reads_hides_no_point(scene: Scene) -> None:
    """Between a reader's queries for marks and for chunks, short chunks are packed into a full one."""
    work = scene.running(last_step=999, steps=2_000)
    engine = scene.database.engine
    packed: list[str] = []

    def pack_first(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if "FROM metric_chunk" in statement and not packed:
            packed.append(statement)
            work.step(1_000, 1_000)

    hooks.listen(engine, "before_cursor_execute", pack_first)
    try:
        shown = curve(scene, work.run_id)
    finally:
        hooks.remove(engine, "before_cursor_execute", pack_first)
    assert packed
    assert sorted(shown) == list(range(1, 1_000))
    assert sorted(curve(scene, work.run_id)) == list(range(1, 1_001))


def read_to_the_end(follower: MetricStreamReader) -> list[dict[str, Any]]:
    """All events that the stream of a run that has ended would send. The stream must end."""
    events: list[ServerEvent] = []
    for _ in range(100):
        news = follower.read()
        events += news.events
        if news.ended:
            return [{"event": item.event, "id": item.id, "data": json.loads(item.data)} for item in events]
    raise AssertionError("the stream repeats itself")


def follower_of(scene: Scene, run_id: str, after: str = "") -> MetricStreamReader:
    follower = MetricStreamReader(scene.database, parse_id("run", run_id))
    follower.seek(after)
    return follower


@pytest.mark.parametrize("continues", [True, False])
def test_an_attempt_that_never_started_removes_no_points(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, continues: bool
) -> None:
    """It was expected to resume at step 5, more than a page before the newest point."""
    monkeypatch.setattr(metric_stream, "PAGE_POINTS", 20)
    work = scene.running(last_step=5)
    work.save(5)
    work.step(6, 100)
    work.ended("crashed")
    work = scene.again(work.run_id)
    assert work.claim.job.resume and work.claim.job.resume.step == 5
    note = {"type": "note", "message": "the data is being read"}
    assert work.send(work.batch([note])).status_code == 200
    if continues:
        work.ended("crashed")
        work = scene.again(work.run_id)
        work.begin(resume_step=90)
        work.step(91, 110, scale=3.0)
    scene.cancel(work.run_id)
    work.order("ended")
    left = {s: 1 / s for s in range(1, 91)} | {s: 3 / s for s in range(91, 111)}
    expected = left if continues else {s: 1 / s for s in range(1, 101)}
    assert curve(scene, work.run_id) == expected
    events = read_to_the_end(follower_of(scene, work.run_id))
    assert points_of(events) == expected
    assert "rewind" not in {event["event"] for event in events}, "nothing that was sent has been removed"
    for number, event in enumerate(events):  # a stream may disconnect after any message
        rest = read_to_the_end(follower_of(scene, work.run_id, event["id"]))
        assert points_of([*events[: number + 1], *rest]) == expected


@pytest.mark.parametrize("at_mark", [True, False])
def test_an_attempt_without_points_hides_no_rewind(scene: Scene, at_mark: bool) -> None:
    """A reader at the start of an attempt has the points of the attempts before it."""
    work = scene.running(last_step=100)
    work.ended("crashed")
    work = scene.again(work.run_id)
    if not at_mark:  # the step to rewind to is not known yet
        assert (
            work.send(work.batch([{"type": "note", "message": "the data is being read"}])).status_code == 200
        )
    else:
        work.begin(resume_step=80)
    follower = follower_of(scene, work.run_id)
    seen: list[dict[str, Any]] = []
    while (news := follower.read()).more:
        seen += [{"event": item.event, "id": item.id, "data": json.loads(item.data)} for item in news.events]
    assert len(points_of(seen)) == (80 if at_mark else 100)
    if at_mark:
        work.ended("crashed")
        work = scene.again(work.run_id)
    work.begin(resume_step=50)
    work.step(51, 60, scale=3.0)
    scene.cancel(work.run_id)
    work.order("ended")
    expected = {s: 1 / s for s in range(1, 51)} | {s: 3 / s for s in range(51, 61)}
    assert points_of([*seen, *read_to_the_end(follower)]) == expected
    later = follower_of(scene, work.run_id, seen[-1]["id"])
    assert points_of([*seen, *read_to_the_end(later)]) == expected


def test_a_batch_must_move_the_offset_forward(scene: Scene) -> None:
    work = scene.running()
    back = {**work.batch(metrics=[losses(4, 4)]), "next_offset": work.offset - 1}
    response = work.agent.post(work.run_id, "batches", back)
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "next_offset")


def test_a_stream_continues_where_it_stopped(scene: Scene) -> None:
    work = scene.running(last_step=5)
    cursor = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics").json()["cursor"]
    work.send(work.batch(metrics=[{"steps": [5], "series": {"validation_loss": [3.5]}}, losses(6, 10)]))
    scene.cancel(work.run_id)
    work.order("ended")
    events = follow(scene, work.run_id, cursor)
    assert sorted(points_of(events)) == [6, 7, 8, 9, 10]
    assert points_of(events, "validation_loss") == {5: 3.5}, (
        "a series that came later, at a step already seen"
    )
    assert events[-1]["id"] == f"1:{work.offset}"
    assert follow(scene, work.run_id, events[-1]["id"]) == []


@pytest.mark.both_databases
def test_a_sparse_series_does_not_cause_others_to_be_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = scene.running(last_step=5_000, steps=10_000)
    cursor = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics").json()["cursor"]
    work.send(work.batch(metrics=[{"steps": [5_001], "series": {"validation_loss": [3.5], "loss": [1.0]}}]))
    scene.cancel(work.run_id)
    work.order("ended")
    points_read: list[int] = []

    def counted(*given: Any) -> dict[int, Curve]:
        curves = read_curves(*given)
        points_read.extend(len(curve) for curve in curves.values())
        return curves

    monkeypatch.setattr("trainwright_backend.metrics.metric_stream.read_curves", counted)
    events = follow(scene, work.run_id, cursor)
    assert (points_of(events), points_of(events, "validation_loss")) == ({5_001: 1.0}, {5_001: 3.5})
    assert sum(points_read) == 2


def test_a_cursor_ahead_of_all_points_restarts_the_stream(scene: Scene) -> None:
    work = scene.running(last_step=5)
    work.ended("crashed")
    work = scene.again(work.run_id)
    scene.cancel(work.run_id)
    work.ended("cancelled")
    events = follow(scene, work.run_id, "2~e30=")
    assert events[0] == {"event": "rewind", "data": {"step": 0}}
    assert sorted(points_of(events)) == [1, 2, 3, 4, 5]


def test_late_batches_of_an_old_attempt_are_refused(scene: Scene) -> None:
    old = scene.running(last_step=5)
    assert old.ended("crashed") == "retry_wait"
    assert old.send(old.batch(metrics=[losses(6, 6)])).status_code == 200, "its fence is still the newest"
    new = scene.again(old.run_id)
    refused = old.send(old.batch(metrics=[losses(7, 7)]))
    assert (refused.status_code, refused.json()["code"]) == (409, "stale_fence")
    new.begin(0)
    mixed = {**new.batch(metrics=[losses(1, 1)]), "attempt": 1}
    assert new.send(mixed).json()["code"] == "stale_fence"
    assert curve(scene, new.run_id) == {}


def test_down_sampling_keeps_spikes_and_the_last_point(scene: Scene) -> None:
    work = scene.running(last_step=1)
    steps = list(range(2, 10_001))
    values = [math.sin(step / 500) for step in steps]
    values[4_321] = 99.0
    work.send(work.batch(metrics=[{"steps": steps, "series": {"grad_norm": values}}]))
    thin = curve(scene, work.run_id, "grad_norm", points=100)
    assert len(thin) <= 100
    assert thin[steps[4_321]] == 99.0
    assert thin[10_000] == values[-1]
    assert set(thin.items()) <= set(zip(steps, values, strict=True))
    work.send(work.batch(metrics=[{"steps": [10_001, 10_002], "series": {"grad_norm": [1.0, 2.0]}}]))
    assert 9_000 < len(curve(scene, work.run_id, "grad_norm")) <= 10_000, (
        "a request without a number gets a limited one"
    )


def test_a_wide_view_has_points_of_each_attempt_by_its_steps(scene: Scene) -> None:
    work = scene.running(last_step=2_000, steps=20_000)
    work.ended("crashed")
    work = scene.again(work.run_id)
    work.begin(resume_step=2_000)
    work.step(2_001, 10_000)
    shown = curve(scene, work.run_id, points=100)
    assert len(shown) <= 100
    assert max(shown) == 10_000
    assert 15 <= sum(step <= 2_000 for step in shown) <= 25, "a fifth of the steps"


def test_elapsed_time_is_summed_before_down_sampling(scene: Scene) -> None:
    """Steps take 1 to 3 seconds, a few a minute; a second attempt continues from the first one's sum."""
    dice = random.Random(2)
    lengths = [60.0 if dice.random() < 0.003 else dice.uniform(1, 3) for _ in range(9_000)]
    work = scene.running(last_step=1, steps=20_000)
    work.send(work.batch(metrics=[{"steps": [*range(2, 5_002)], "series": {"seconds": [9.0] * 5_000}}]))
    work.ended("crashed")
    work = scene.again(work.run_id)
    work.begin(resume_step=1)
    block = {"steps": [*range(2, 9_002)], "series": {"seconds": lengths}}
    work.send(work.batch(metrics=[block]))
    sums = dict(zip(block["steps"], accumulate(lengths), strict=True))
    for points in (20, 600, 10_000):
        shown = curve(scene, work.run_id, "elapsed_seconds", points=points)
        assert len(shown) <= points and max(shown) == 9_001
        assert all(shown[step] == pytest.approx(sums[step]) for step in shown)
    steps = sorted(shown := curve(scene, work.run_id, "elapsed_seconds", points=600))
    between = np.interp([*sums], steps, [shown[step] for step in steps])
    assert np.abs(between - [*sums.values()]).max() < 0.01 * sums[9_001]
    window = curve(scene, work.run_id, "elapsed_seconds", after_step=100, to_step=200)
    assert [*window] == [*range(101, 201)] and window[101] == pytest.approx(sums[101])
    names = {
        item["name"] for item in scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics").json()["series"]
    }
    assert "seconds" in names and "elapsed_seconds" not in names, "only for requests that name it"


def test_points_that_are_not_finite_or_not_newer_are_dropped(scene: Scene) -> None:
    work = scene.running(last_step=3)
    block = {"steps": [3, 4, 5, 5, 6], "series": {"loss": [9.0, 0.4, "NaN", 9.0, 0.6]}}
    assert work.send(work.batch(metrics=[block])).status_code == 200
    assert curve(scene, work.run_id) == {1: 1.0, 2: 0.5, 3: 1 / 3, 4: 0.4, 5: 9.0, 6: 0.6}


def test_the_summary_has_last_values_and_a_short_curve(scene: Scene) -> None:
    work = scene.running(last_step=1_000, steps=2_000)
    work.send(work.batch(metrics=[{"steps": [1_000], "series": {"eta_seconds": [4_500.0]}}]))
    shown = scene.show(work.run_id)
    assert shown["sentence"] == "step 1,000 of 2,000, 1 h 15 min left"
    assert shown["summary"]["values"]["tokens"] == 10_000
    assert 16 <= len(shown["summary"]["spark"]) <= 32
    assert shown["summary"]["spark"] == sorted(shown["summary"]["spark"], reverse=True)


def test_speeds_in_the_summary_are_means_of_recent_steps(scene: Scene) -> None:
    work = scene.running(last_step=1)
    seconds = [1.0 + step % 3 for step in range(1, 21)]
    for first in (1, 8):  # batches may end at any step
        steps = [step for step in range(1, 21) if (step < 8) == (first == 1)]
        taken = [seconds[step - 1] for step in steps]
        series = {"seconds": taken, "tokens_per_second": [100 / one for one in taken], "eta_seconds": taken}
        assert work.send(work.batch(metrics=[{"steps": steps, "series": series}])).status_code == 200
    values = scene.show(work.run_id)["summary"]["values"]
    mean = sum(seconds) / 20
    assert values["seconds"] == pytest.approx(mean)
    assert values["tokens_per_second"] == pytest.approx(100 / mean), "all tokens over all seconds"
    assert values["eta_seconds"] == seconds[-1]
    slower = {"steps": list(range(21, 121)), "series": {"seconds": [10.0] * 100}}
    assert work.send(work.batch(metrics=[slower])).status_code == 200
    assert scene.show(work.run_id)["summary"]["values"]["seconds"] == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize(("loss", "shown"), [(26.3261, "26.326"), (1_901.16, "1,901")])
def test_the_result_of_a_run_says_if_its_loss_rose(scene: Scene, loss: float, shown: str) -> None:
    work = scene.running(last_step=9, steps=10)
    work.send(work.batch(metrics=[{"steps": [10], "series": {"loss": [loss]}}]))
    work.save(10)
    assert work.order("completing") == "go"
    work.save(10, "export")
    assert work.ended("finished", step=10) == "succeeded"
    assert scene.show(work.run_id)["sentence"] == f"loss {shown} (it rose from 1.000)"


def test_events_describe_the_run_and_are_streamed(scene: Scene) -> None:
    work = scene.start()
    work.order("starting")
    work.begin()
    note = {"type": "note", "message": "compiled in 3 s"}
    saved = {
        "type": "checkpoint_saved",
        "step": 2,
        "folder": "step-2",
        "digest": "0",
        "bytes": 5_000_000,
        "seconds": 1,
    }
    newer = {"type": "of_a_newer_trainer", "message": "something"}
    work.send(work.batch([note, saved, newer]))
    scene.cancel(work.run_id)
    work.order("ended")
    shown = scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json()
    assert [event["sequence"] for event in shown] == list(range(1, len(shown) + 1))
    assert [event["type"] for event in shown if event["type"] != "state"] == [
        "precision_chosen",
        "attempt_started",
        "note",
        "checkpoint_saved",
        "of_a_newer_trainer",
    ]
    assert "saved step 2 (4.8 MiB in 1.00 s)" in [event["message"] for event in shown]
    streamed = scene.site.admin.get(
        f"{scene.runs}/{work.run_id}/events/stream", headers={"Last-Event-ID": "3"}
    )
    assert [event["data"] for event in stream_events(streamed.text)] == shown[3:]
    assert [event["id"] for event in stream_events(streamed.text)] == [
        str(n) for n in range(4, len(shown) + 1)
    ]


def test_logs_are_stored_once_and_read_as_text(scene: Scene) -> None:
    work = scene.running()
    whole = "grüße 😀 from rank 0\n".encode() * 50
    for begin in range(0, len(whole), 7):  # splits characters
        assert work.log(whole[begin : begin + 7]).status_code == 200
    again = work.log(whole[:7], offset=0)
    assert (again.status_code, again.json()["code"], again.json()["offset"]) == (
        409,
        "wrong_offset",
        len(whole),
    )
    assert work.log(b"x", "../../etc/passwd").status_code in (404, 422)
    assert work.log(b"x", "events.jsonl").status_code == 422
    assert read_whole(scene, work) == whole.decode()
    listed = scene.site.admin.get(f"{scene.runs}/{work.run_id}/logs").json()
    assert listed == [{"attempt": 1, "file": "rank-0.log", "bytes": len(whole), "node": "node-a"}]
    assert scene.site.admin.get(f"{scene.runs}/{work.run_id}/logs/1/rank-9.log").status_code == 404


def read_whole(scene: Scene, work: Work) -> str:
    text, offset, end = "", 0, False
    while not end:
        path = f"{scene.runs}/{work.run_id}/logs/1/rank-0.log"
        part = scene.site.admin.get(path, params={"offset": offset, "limit": 64}).json()
        text, offset, end = text + part["text"], part["next_offset"], part["end"]
    return text


def test_the_older_name_of_a_series_is_accepted_in_batches_and_requests(scene: Scene) -> None:
    work = scene.running(last_step=1)
    block = {"steps": [2], "series": {"fp8_flushed": [0.25]}}
    assert work.send(work.batch(metrics=[block])).status_code == 200
    for name in ("fp8_flushed", "fp8_underflow"):
        response = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics", params={"names": name})
        (series,) = response.json()["series"]
        assert (series["name"], series["unit"], series["values"]) == ("fp8_underflow", "fraction", [0.25])


def test_a_fraction_of_a_peak_above_one_is_never_shown(scene: Scene) -> None:
    """13.31 of a peak means that the peak is wrong, also for the steps before and after."""
    work = scene.start()
    work.order("starting")
    started = {"type": "attempt_started", "attempt": 1, "resume_step": 0, "ranks": 2, "parameters": 7}
    peak = "BF16 measured peak 3 GFLOP/s of a CPU"
    work.send(work.batch([started | {"device": "a CPU", "peak_name": peak}]))
    work.order("running")
    for step, mfu in enumerate([0.9, 13.31, 0.5], start=1):
        series = {"loss": [1.0], "mfu": [mfu], "hfu": [mfu], "tokens_per_second": [5.0]}
        assert work.send(work.batch(metrics=[{"steps": [step], "series": series}])).status_code == 200
        shown = scene.show(work.run_id)
        known = step == 1
        assert ("mfu" in shown["summary"]["values"], shown["summary"]["mfu_unknown"] is None) == (
            known,
            known,
        )
        assert (
            curve(scene, work.run_id, "mfu")
            == curve(scene, work.run_id, "hfu")
            == ({1: 0.9} if known else {})
        )
    assert curve(scene, work.run_id, "tokens_per_second") == {1: 5.0, 2: 5.0, 3: 5.0}
    assert shown["summary"]["mfu_unknown"] == f"peak not known: the run was faster than the {peak}"
    assert shown["summary"]["peak_name"] == peak, "the run keeps the peak that it was compared with"
    events = scene.site.admin.get(f"{scene.runs}/{work.run_id}/events").json()
    told = [event for event in events if event["type"] == "peak_beaten"]
    assert [(event["step"], event["message"]) for event in told] == [
        (2, f"MFU is not shown: at step 2 the run was faster than the {peak}")
    ]
    assert work.ended("crashed", "rank 1 died") == "retry_wait"
    again = scene.again(work.run_id)
    again.order("starting")
    again.send(again.batch([started | {"attempt": 2, "device": "a CPU", "peak_name": "another"}]))
    again.order("running")
    again.send(again.batch(metrics=[{"steps": [1], "series": {"mfu": [0.25]}}]))
    assert scene.show(work.run_id)["summary"]["values"]["mfu"] == 0.25, "the next attempt has another peak"
