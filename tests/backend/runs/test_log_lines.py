"""Logs by line: numbers, progress bars, very long lines, invalid UTF-8; and searches."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from tests.backend.scripted_agent import Scene, Work, stream_events
from trainwright_backend.core.ids import parse_id
from trainwright_backend.runs import attempt_files, log_lines
from trainwright_backend.runs.tables import AttemptFile, LogChunk


def get(scene: Scene, work: Work, what: str, **query: Any) -> dict[str, Any]:
    path = f"{scene.runs}/{work.run_id}/logs/1/rank-0.log/{what}"
    response = scene.site.admin.get(path, params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def lines_of(scene: Scene, work: Work, **query: Any) -> dict[int, str]:
    return {line["number"]: line["text"] for line in get(scene, work, "lines", **query)["lines"]}


def append_log(work: Work, *stretches: bytes) -> None:
    for stretch in stretches:
        assert work.log(stretch).status_code == 200


def test_lines_that_span_chunks_are_complete(scene: Scene) -> None:
    work = scene.running()
    append_log(work, b"one\ntw", b"o\n", b"thr", b"e", b"e\n\nfive\n", b"si")
    assert lines_of(scene, work) == {1: "one", 2: "two", 3: "three", 4: "", 5: "five", 6: "si"}
    assert get(scene, work, "lines")["total"] == 6
    append_log(work, b"x\n")
    assert lines_of(scene, work, first=6) == {6: "six"}
    assert get(scene, work, "lines", first=7) == {"lines": [], "total": 6}
    assert lines_of(scene, work, first=2, limit=2) == {2: "two", 3: "three"}
    assert lines_of(scene, work, first=5, limit=1) == {5: "five"}


def test_a_line_has_the_time_at_which_its_end_arrived(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    work = scene.running()
    begin = datetime(2026, 1, 31, 9, tzinfo=UTC)
    for second, stretch in enumerate((b"one\ntw", b"o\nthree\nfo", b"ur")):
        monkeypatch.setattr(attempt_files, "now", lambda: begin + timedelta(seconds=second))  # noqa: B023
        append_log(work, stretch)
    times = {line["number"]: line["time"][17:19] for line in get(scene, work, "lines")["lines"]}
    assert times == {1: "00", 2: "01", 3: "01", 4: "02"}
    [match] = get(scene, work, "search", q="two")["lines"]
    assert match["time"] == "2026-01-31T09:00:01Z"


def test_lines_that_an_earlier_version_stored_have_no_time(scene: Scene) -> None:
    work = scene.running()
    write_log(scene, work, [b"one\n"])
    assert get(scene, work, "lines")["lines"] == [{"number": 1, "text": "one", "time": None}]


def test_only_the_last_state_of_a_progress_bar_is_shown(scene: Scene) -> None:
    work = scene.running()
    append_log(work, b"windows\r\n 1 %\r 50 %", b"\r100 %\nplain\n 3 %\r 4 %\r")
    assert lines_of(scene, work) == {1: "windows", 2: "100 %", 3: "plain", 4: " 4 %"}
    assert get(scene, work, "search", q="50 %")["lines"] == []
    assert [line["number"] for line in get(scene, work, "search", q="100 %")["lines"]] == [2]


def test_invalid_utf8_is_shown_as_replacement_characters(scene: Scene) -> None:
    work = scene.running()
    append_log(work, b"gr" + b"\xff\xfe\n" + "größe 😀\n".encode()[:4], "größe 😀\n".encode()[4:])
    assert lines_of(scene, work) == {1: "gr\ufffd\ufffd", 2: "größe 😀"}
    assert [line["number"] for line in get(scene, work, "search", q="GRÖSSE")["lines"]] == [2]


def test_a_very_long_line_is_truncated_and_does_not_hide_later_lines(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "MAX_LINE_BYTES", 40_000)
    work = scene.running()
    append_log(work, b"first\n", *[b"x" * 30_000] * 20, b"needle\nlast\n")
    assert {number: len(text) for number, text in lines_of(scene, work).items()} == {1: 5, 2: 10_000, 3: 4}
    assert lines_of(scene, work, first=3) == {3: "last"}
    assert [line["number"] for line in get(scene, work, "search", q="xneedle")["lines"]] == [2]
    found = get(scene, work, "search", q="LAST")
    assert [(line["number"], line["text"]) for line in found["lines"]] == [(3, "last")]
    assert (found["searched_to"], found["end"]) == (3, True)


def test_a_search_is_bounded_and_can_be_continued(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "SEARCHED_BYTES", 2_000)
    work = scene.running()
    for begin in range(0, 1_000, 50):
        append_log(work, b"".join(b"Step %d of it\n" % n for n in range(begin, begin + 50)))
    found, after, rounds = [], 0, 0
    while True:
        response = get(scene, work, "search", q="sTEP 7", after_line=after, limit=10)
        found += [line["number"] for line in response["lines"]]
        after, rounds = response["searched_to"], rounds + 1
        if response["end"]:
            break
    assert found == [n + 1 for n in range(1_000) if str(n).startswith("7")]
    assert rounds > 10


@pytest.mark.parametrize(
    ("what", "query", "field"),
    [
        ("lines", {"first": 0}, "first"),
        ("lines", {"limit": 5_001}, "limit"),
        ("search", {"q": ""}, "q"),
        ("search", {"q": "\n"}, "q"),
        ("search", {"q": "x", "limit": 1_001}, "limit"),
    ],
)
def test_invalid_line_numbers_and_limits_are_refused(
    scene: Scene, what: str, query: dict[str, Any], field: str
) -> None:
    work = scene.running()
    append_log(work, b"x\n")
    path = f"{scene.runs}/{work.run_id}/logs/1/rank-0.log/{what}"
    response = scene.site.admin.get(path, params=query)
    assert (response.status_code, response.json()["errors"][0]["field"].split(".")[-1]) == (422, field)
    assert scene.site.admin.get(path.replace("rank-0", "rank-7"), params={"q": "x"}).status_code == 404


def expected(content: bytes) -> list[str]:
    """The lines of a log, by a simple independent rule."""
    lines = content.split(b"\n")
    whole = lines if lines[-1] else lines[:-1]
    return [line.rstrip(b"\r").split(b"\r")[-1].decode("utf-8", "replace") for line in whole]


PIECES = st.lists(
    st.sampled_from([b"a", b"B", b"\n", b"\r", b"ab\n", "ä".encode(), b"\xc3", b"\n\n"]), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(
    stretches=st.lists(PIECES.map(b"".join).filter(bool), max_size=10),
    first=st.integers(1, 12),
    count=st.integers(1, 9),
)
def check_any_log(scene: Scene, work: Work, stretches: list[bytes], first: int, count: int) -> None:
    write_log(scene, work, stretches)
    lines = expected(b"".join(stretches))
    numbered = dict(enumerate(lines, 1))
    assert get(scene, work, "lines", limit=5_000)["total"] == len(lines)
    shown = lines_of(scene, work, first=first, limit=count)
    assert shown == {n: text for n, text in numbered.items() if first <= n < first + count}
    found = get(scene, work, "search", q="AB", after_line=first, limit=1_000)
    assert found["end"] is True
    hits = [n for n, text in numbered.items() if n > first and "ab" in text.casefold()]
    assert [line["number"] for line in found["lines"]] == hits


def write_log(scene: Scene, work: Work, stretches: list[bytes]) -> None:
    """Replace the log by these segments, stored as the route does."""
    of_log = {"run_id": parse_id("run", work.run_id), "attempt": 1, "file": "rank-0.log"}
    with scene.database.write() as session:
        for table in (LogChunk, AttemptFile):
            for row in session.query(table).filter_by(**of_log):
                session.delete(row)
        session.flush()
        offset = line_ends = 0
        for stretch in stretches:
            row = {**of_log, "offset": offset, "lines_before": line_ends, "content": stretch}
            session.execute(insert(LogChunk).values(**row))
            offset, line_ends = offset + len(stretch), line_ends + stretch.count(b"\n")
        is_open = bool(stretches) and not stretches[-1].endswith(b"\n")
        session.add(AttemptFile(**of_log, bytes=offset, line_ends=line_ends, has_open_line=is_open))


@pytest.mark.slow(target="databases")
def test_any_log_is_returned_line_by_line(scene: Scene) -> None:
    check_any_log(scene, scene.running())


@pytest.mark.parametrize("what", ["", "/lines", "/search?q=x"])
def test_an_impossible_attempt_number_is_not_found(scene: Scene, what: str) -> None:
    logs = f"{scene.runs}/{scene.running().run_id}/logs"
    responses = [scene.site.admin.get(f"{logs}/{attempt}/rank-0.log{what}") for attempt in (2**31 - 1, 2**31)]
    assert [response.status_code for response in responses] == [404, 422]


def test_events_after_an_impossible_number_are_empty(scene: Scene) -> None:
    work = scene.running()
    events = f"{scene.runs}/{work.run_id}/events"
    responses = [scene.site.admin.get(events, params={"after": after}) for after in (2**31 - 1, 2**31)]
    assert [response.status_code for response in responses] == [200, 422]
    scene.cancel(work.run_id)
    work.order("ended")
    stream = scene.site.admin.get(f"{events}/stream", headers={"Last-Event-ID": str(2**53)})
    assert (stream.status_code, stream_events(stream.text)) == (200, [])


def test_the_logs_of_a_run_have_a_limit_and_end_with_a_notice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_files, "MAX_LOG_BYTES", 30)
    notice = attempt_files.LIMIT_NOTICE.decode().rstrip("\n")
    work = scene.running(slots=2)
    assert work.log(b"a" * 19 + b"\n", "rank-1.log").status_code == 200
    append_log(work, b"first\n")
    cut = work.log(b"second\nthird\n")
    assert cut.status_code == 200
    assert lines_of(scene, work) == {1: "first", 2: "seco", 3: notice}
    refused = work.log(b"fourth\n", offset=cut.json()["offset"])
    assert (refused.status_code, refused.json()["code"]) == (413, "log_limit")
    assert lines_of(scene, work) == {1: "first", 2: "seco", 3: notice}
    assert work.log(b"more\n", "rank-1.log").status_code == 200, "this file ends with the notice too"
    assert work.log(b"more\n", "rank-1.log").status_code == 413
    assert work.ended("crashed", "rank 1 died") == "retry_wait", "the end is accepted with what was stored"
    again = scene.again(work.run_id)
    assert again.log(b"next attempt\n").status_code == 200
    shown = scene.site.admin.get(f"{scene.runs}/{work.run_id}/logs/2/rank-0.log").json()
    assert shown["text"] == notice + "\n", "the limit applies to the whole run"
