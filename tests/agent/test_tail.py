"""Chunks of growing files: complete lines, columns, offsets, and no symlinks."""

import os
from pathlib import Path

import pytest

from tests.agent.folders import step_line, write_events
from trainwright.contracts.agent_protocol import Batch
from trainwright_agent.tail import (
    CHUNK_BYTES,
    FirstStepWatch,
    log_names,
    read_batch,
    read_log,
    saved_checkpoints,
)


def batch(folder: Path, offset: int = 0) -> Batch | None:
    return read_batch(folder, attempt=1, fence=7, offset=offset)


def test_without_a_file_or_a_complete_line_there_is_no_batch(tmp_path: Path) -> None:
    assert batch(tmp_path) is None
    write_events(tmp_path, torn=b'{"type": "step", "st')
    assert batch(tmp_path) is None


def test_an_incomplete_last_line_is_read_once_complete(tmp_path: Path) -> None:
    path = write_events(tmp_path, step_line(1), torn=b'{"type": "note", "time": "2026-01-01T00:00:00Z", ')
    first = batch(tmp_path)
    assert first is not None
    assert first.next_offset < path.stat().st_size
    assert batch(tmp_path, first.next_offset) is None
    with path.open("ab") as file:
        file.write(b'"message": "whole"}\n')
    second = batch(tmp_path, first.next_offset)
    assert second is not None
    assert second.next_offset == path.stat().st_size
    assert second.events[0]["message"] == "whole"


def test_lines_with_the_same_series_become_columns(tmp_path: Path) -> None:
    write_events(
        tmp_path,
        step_line(1, loss=3.0, mfu=0.1),
        step_line(2, loss=2.0, mfu=0.2),
        step_line(3, loss=1.5),
        {"type": "validation", "step": 3, "values": {"validation_loss": 2.5}},
        step_line(4, loss=1.0),
    )
    whole = batch(tmp_path)
    assert whole is not None
    assert [(block.steps, block.series) for block in whole.metrics] == [
        ([1, 2], {"loss": [3.0, 2.0], "mfu": [0.1, 0.2]}),
        ([3], {"loss": [1.5]}),
        ([3], {"validation_loss": [2.5]}),
        ([4], {"loss": [1.0]}),
    ]


def test_other_lines_are_events_with_their_end_offset(tmp_path: Path) -> None:
    path = write_events(tmp_path, {"type": "note", "message": "a"}, step_line(1))
    write_events(tmp_path, {"type": "unheard_of", "x": 1})
    whole = batch(tmp_path)
    assert whole is not None
    content = path.read_bytes()
    first_line_end = content.index(b"\n") + 1
    assert [event["end_offset"] for event in whole.events] == [first_line_end, len(content)]
    assert whole.events[1]["type"] == "unheard_of"
    assert (whole.fence, whole.attempt, whole.file) == (7, 1, "events.jsonl")


@pytest.mark.parametrize(
    "line", [b"not json", b"[1, 2]", b'{"type": "step", "step": "x", "values": {"a": 1}}', b"\xff\xfe", b""]
)
def test_unreadable_lines_are_skipped(tmp_path: Path, line: bytes) -> None:
    write_events(tmp_path, step_line(1), torn=line + b"\n")
    write_events(tmp_path, step_line(2))
    whole = batch(tmp_path)
    assert whole is not None
    assert [step for block in whole.metrics for step in block.steps] == [1, 2]
    assert whole.next_offset == (tmp_path / "out/events.jsonl").stat().st_size


def test_chunks_are_bounded_and_contiguous(tmp_path: Path) -> None:
    path = write_events(
        tmp_path, *(step_line(step, loss=1.0, tokens=float(step)) for step in range(1, 8_001))
    )
    write_events(tmp_path, {"type": "note", "message": "x" * (2 * CHUNK_BYTES)})
    offset, steps, events = 0, [], 0
    while (part := batch(tmp_path, offset)) is not None:
        assert part.offset == offset
        steps += [step for block in part.metrics for step in block.steps]
        events += len(part.events)
        assert part.next_offset - part.offset <= CHUNK_BYTES or part.events
        offset = part.next_offset
    assert offset == path.stat().st_size
    assert steps == list(range(1, 8_001))
    assert events == 1


def test_an_overlong_line_does_not_stop_reading(tmp_path: Path) -> None:
    path = write_events(tmp_path, torn=b"x" * (17 * 2**20) + b"\n")
    write_events(tmp_path, step_line(1))
    offset, steps = 0, []
    while (part := batch(tmp_path, offset)) is not None:
        steps += [step for block in part.metrics for step in block.steps]
        offset = part.next_offset
    assert (offset, steps) == (path.stat().st_size, [1])


def test_checkpoints_are_found_with_the_end_offset_of_their_line(tmp_path: Path) -> None:
    saved = {
        "type": "checkpoint_saved",
        "step": 1,
        "folder": "step-1",
        "digest": "d",
        "bytes": 1,
        "seconds": 0.1,
    }
    path = write_events(tmp_path, step_line(1), saved)
    found, offset = saved_checkpoints(tmp_path)
    assert [(item.line.step, item.end_offset) for item in found] == [(1, path.stat().st_size)]
    write_events(tmp_path, step_line(2), {**saved, "step": 2})
    found, _ = saved_checkpoints(tmp_path, offset)
    assert [item.line.step for item in found] == [2]


def test_the_first_step_is_detected_once_its_line_is_complete(tmp_path: Path) -> None:
    watch = FirstStepWatch(tmp_path)
    assert not watch.has_grown()
    write_events(tmp_path, {"type": "attempt_started"}, torn=b'{"type": "step",')
    assert watch.has_grown()
    assert not watch.has_step
    assert not watch.has_grown()
    write_events(tmp_path, torn=b' "step": 1, "values": {}}\n')
    assert watch.has_grown()
    assert watch.has_step


def test_no_symlink_is_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"type": "note", "message": "secret"}\n')
    folder = tmp_path / "attempt"
    (folder / "out" / "logs").mkdir(parents=True)
    (folder / "out" / "events.jsonl").symlink_to(secret)
    (folder / "out" / "logs" / "rank-0.log").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        batch(folder)
    with pytest.raises(OSError, match="symbolic"):
        read_log(folder, "rank-0.log", 0)
    assert not FirstStepWatch(folder).has_grown()


def test_no_symlinked_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "logs").mkdir(parents=True)
    (tmp_path / "elsewhere" / "events.jsonl").write_text('{"type": "note"}\n')
    (tmp_path / "elsewhere" / "logs" / "rank-0.log").write_text("secret")
    folder = tmp_path / "attempt"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Not a directory"):
        batch(folder)
    assert log_names(folder) == []


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "events.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        batch(tmp_path)


def test_only_logs_with_plain_names_are_shipped(tmp_path: Path) -> None:
    logs = tmp_path / "out" / "logs"
    logs.mkdir(parents=True)
    for name in ("rank-0.log", "export.log", "notes.txt", ".hidden.log", "a b.log", "new\nline.log"):
        (logs / name).write_text("x")
    assert log_names(tmp_path) == ["export.log", "rank-0.log"]


def test_logs_are_read_from_any_byte(tmp_path: Path) -> None:
    (tmp_path / "out" / "logs").mkdir(parents=True)
    (tmp_path / "out" / "logs" / "rank-0.log").write_bytes("größe".encode())
    assert read_log(tmp_path, "rank-0.log", 3) == b"\xb6\xc3\x9fe"
    assert read_log(tmp_path, "rank-0.log", 99) == b""
