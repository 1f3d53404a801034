"""Series of single tensors, thousands in a large model: returned only on request, at no cost to other requests."""

import time
from typing import Any

import pytest
from sqlalchemy import select

from tests.backend.scripted_agent import Scene, Work, losses, stream_events
from tests.backend.sent_statements import sent_statements
from trainwright_backend.metrics.selection import Selection
from trainwright_backend.metrics.tables import MetricChunk, MetricMark, MetricSeries
from trainwright_backend.runs.tables import RunSummary

LAYERS = 32
ATTENTION = ("query", "key", "value", "output")
FEED_FORWARD = ("gate", "up", "down")
PARTS = [f"attention.{name}" for name in ATTENTION] + [f"feed_forward.{name}" for name in FEED_FORWARD]
KINDS = ("weight", "gradient", "input", "output_gradient")
TENSORS = [f"layers.{n}.{part}.weight:{kind}" for n in range(LAYERS) for part in PARTS for kind in KINDS]
SERIES = len(TENSORS) * 2


def observation(step: int) -> dict[str, Any]:
    """A trainer's measurements of each tensor of a model with 7B parameters; values encode layer and step."""
    values = {name: float(n // len(PARTS) // len(KINDS)) + step / 1_000 for n, name in enumerate(TENSORS)}
    amaxes = {f"fp8_amax/{name}": [value] for name, value in values.items()}
    scales = {f"fp8_scale/{name}": [2.0**-9] for name in values}
    return {"steps": [step], "series": {**amaxes, **scales, "fp8_saturated": [step / 1e6]}}


def observe(work: Work, *steps: int) -> None:
    response = work.send(work.batch(metrics=[observation(step) for step in steps]))
    assert response.status_code == 200, response.text


def get(scene: Scene, work: Work, path: str = "", **query: Any) -> Any:
    response = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics{path}", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def names(metrics: dict[str, Any]) -> list[str]:
    return [series["name"] for series in metrics["series"]]


def test_series_of_tensors_are_returned_only_on_request(scene: Scene) -> None:
    work = scene.running(last_step=3, steps=100)
    observe(work, 10, 20)
    assert names(get(scene, work)) == ["loss", "tokens", "fp8_saturated"]
    query = get(scene, work, names="fp8_amax/layers.*.attention.query.weight:input", points=100)
    assert len(query["series"]) == LAYERS
    by_name = {series["name"]: series for series in query["series"]}
    assert by_name["fp8_amax/layers.31.attention.query.weight:input"]["values"] == [31.01, 31.02]
    both = get(scene, work, names=["loss", "fp8_scale/layers.0.attention.key.weight:weight"])
    assert names(both) == ["loss", "fp8_scale/layers.0.attention.key.weight:weight"]
    assert len(get(scene, work, "/names", names="fp8_amax/*")) == len(TENSORS)
    assert get(scene, work, "/names") == ["loss", "tokens", "fp8_saturated"]
    shown = scene.show(work.run_id)["summary"]["values"]
    assert sorted(shown) == ["fp8_saturated", "loss", "tokens"], "the list of runs would carry all of them"


def test_a_response_is_bounded(scene: Scene) -> None:
    work = scene.running(last_step=3, steps=100)
    observe(work, 10)
    response = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics", params={"names": "*"})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "names")
    assert f"{SERIES + 3:,} series" in response.json()["detail"]
    many = scene.site.admin.get(f"{scene.runs}/{work.run_id}/metrics", params={"names": ["x"] * 101})
    assert many.status_code == 422


def test_streams_send_them_only_on_request(scene: Scene) -> None:
    work = scene.running(last_step=3, steps=100)
    observe(work, 10)
    cursor = get(scene, work)["cursor"]
    observe(work, 20)
    scene.cancel(work.run_id)
    work.order("ended")
    one = "fp8_amax/layers.3.feed_forward.up.weight:gradient"

    def follow(cursor: str = "", **query: Any) -> dict[str, list[int]]:
        headers = {"Last-Event-ID": cursor} if cursor else {}
        path = f"{scene.runs}/{work.run_id}/metrics/stream"
        response = scene.site.admin.get(path, params=query, headers=headers)
        found: dict[str, list[int]] = {}
        for event in stream_events(response.text):
            for name in event["data"]["series"]:
                found.setdefault(name, []).extend(event["data"]["steps"])
        return found

    assert set(follow()) == {"loss", "tokens", "fp8_saturated"}
    assert follow(names=one) == {one: [10, 20]}
    assert follow(cursor, names=one) == {one: [20]}, "it continues from the cursor of another selection"
    assert follow(cursor) == {"fp8_saturated": [20]}


def test_an_interrupted_stream_continues_though_some_series_lack_steps(scene: Scene) -> None:
    """A non-finite value is dropped for its tensor only; a reader that disconnects gets each point once."""
    work = scene.running(last_step=3, steps=100)
    block = {
        "steps": [10, 11, 12, 13],
        "series": {
            "fp8_amax/a:input": [1.0, 2.0, 3.0, 4.0],
            "fp8_amax/b:input": [1.0, "NaN", 3.0, 4.0],
            "fp8_amax/c:input": [1.0, 2.0, 3.0, "NaN"],
            "fp8_scale/a:input": [1.0, 2.0, 3.0, 4.0],
        },
    }
    assert work.send(work.batch(metrics=[block])).status_code == 200
    scene.cancel(work.run_id)
    work.order("ended")

    def follow(cursor: str = "") -> list[dict[str, Any]]:
        headers = {"Last-Event-ID": cursor} if cursor else {}
        path = f"{scene.runs}/{work.run_id}/metrics/stream"
        return stream_events(scene.site.admin.get(path, params={"names": "fp8_*"}, headers=headers).text)

    def points(events: list[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
        found: dict[str, list[tuple[int, float]]] = {}
        for event in events:
            for name, values in event["data"]["series"].items():
                found.setdefault(name, []).extend(zip(event["data"]["steps"], values, strict=True))
        return found

    whole = follow()
    sent = points(whole)
    assert {name: [step for step, _ in pairs] for name, pairs in sent.items()} == {
        "fp8_amax/a:input": [10, 11, 12, 13],
        "fp8_amax/b:input": [10, 12, 13],
        "fp8_amax/c:input": [10, 11, 12],
        "fp8_scale/a:input": [10, 11, 12, 13],
    }
    assert len(whole) > 2
    for cut in range(1, len(whole) + 1):
        again = follow(whole[cut - 1]["id"])
        assert points(whole[:cut] + again) == sent, f"cut after message {cut}"


def test_a_rewind_removes_their_points_too(scene: Scene) -> None:
    work = scene.running(last_step=3, steps=100)
    observe(work, 10, 20)
    work.ended("crashed")
    work = scene.again(work.run_id)
    with sent_statements(scene.database.engine) as heard:
        work.begin(resume_step=15)
    assert len(heard) < 60, "statements must not grow with the number of series"
    one = "fp8_amax/layers.3.feed_forward.up.weight:gradient"
    [series] = get(scene, work, names=one)["series"]
    assert series["steps"] == [10]
    observe(work, 20)
    [series] = get(scene, work, names=one)["series"]
    assert series["steps"] == [10, 20]


def test_a_batch_of_them_is_few_statements_and_a_small_mark(scene: Scene) -> None:
    work = scene.running(last_step=3, steps=100)
    observe(work, 10)
    with sent_statements(scene.database.engine) as heard:
        observe(work, 20)
    assert len(heard) < 60
    with scene.database.read() as session:
        mark = session.scalars(select(MetricMark).order_by(MetricMark.number.desc()).limit(1)).one()
        assert mark.last_steps == {
            "loss": 3,
            "tokens": 3,
            "fp8_saturated": 20,
            "fp8_amax/": 20,
            "fp8_scale/": 20,
        }
        assert len(session.scalars(select(RunSummary)).one().values) == 3


def test_their_chunks_are_short(scene: Scene) -> None:
    """All series fill their chunks at the same step, so the chunk size limits what one batch may move."""
    work = scene.running(last_step=3, steps=10_000)
    tensors = [f"fp8_amax/layers.{n}.a:input" for n in range(3)]
    for begin in (0, 95, 180):
        steps = list(range(begin + 1, begin + 96))
        values = {name: [n + step / 1_000 for step in steps] for n, name in enumerate(tensors)}
        assert work.send(work.batch(metrics=[{"steps": steps, "series": values}])).status_code == 200
    with scene.database.read() as session:
        lengths = select(MetricChunk.n).join(MetricSeries, MetricSeries.id == MetricChunk.series_id)
        found = session.scalars(lengths.where(MetricSeries.name.in_(tensors))).all()
        assert sorted(found) == [75] * 3 + [100] * 6
    for n, series in enumerate(get(scene, work, names="fp8_amax/*")["series"]):
        assert series["steps"] == list(range(1, 276))
        assert series["values"] == [n + step / 1_000 for step in series["steps"]]


def test_the_point_limit_is_shared_by_all_series(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    work = scene.running(last_step=3, steps=1_000)
    work.send(work.batch(metrics=[losses(4, 400)]))
    monkeypatch.setattr("trainwright_backend.metrics.metric_queries.MAX_TOTAL_POINTS", 100)
    lengths = [len(series["steps"]) for series in get(scene, work, points=300)["series"]]
    assert all(40 < length <= 50 for length in lengths), lengths


@pytest.mark.parametrize(
    ("patterns", "name", "meant"),
    [
        ([], "loss", True),
        ([], "fp8_amax/a:input", False),
        (["loss"], "loss", True),
        (["loss"], "validation_loss", False),
        (["*loss"], "validation_loss", True),
        (["fp8_amax/*:input"], "fp8_amax/layers.0.a:input", True),
        (["fp8_amax/*:input"], "fp8_amax/layers.0.a:output_gradient", False),
        (["a*a"], "a", False),
        (["a*b*a"], "a.b.a", True),
        (["a*b*a"], "a.c.a", False),
        (["layers.?"], "layers.1", False),
        (["x", "loss"], "loss", True),
    ],
)
def test_an_asterisk_matches_any_text(patterns: list[str], name: str, meant: bool) -> None:
    assert (name in Selection(patterns)) is meant


def test_no_pattern_is_slow() -> None:
    """40 stars: a regular expression would try some 80⁴⁰ combinations."""
    began = time.monotonic()
    assert "a" * 80 not in Selection(["*a" * 40 + "b*"])
    assert time.monotonic() - began < 1.0
