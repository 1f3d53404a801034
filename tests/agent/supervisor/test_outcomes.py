"""Outcomes are derived from the files that an attempt left."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from trainwright_agent.supervisor.outcomes import (
    clear_failures,
    export_outcome,
    node_failure,
    training_outcome,
)

FINISHED = {"code": "finished", "message": "Finished.", "step": 9}
DIVERGED = {"code": "diverged", "message": "loss is nan", "step": 4, "rank": 1}
RANK_1_CODE_3 = {"rank": 1, "exit_code": 3, "time": 1.0}
RANK_1_KILLED = {"rank": 1, "signal": 9, "time": 1.0}
RANK_0_LATER = {"rank": 0, "exit_code": 1, "time": 2.0}


def write_files(folder: Path, files: dict[str, Any]) -> None:
    (folder / "out").mkdir()
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / "out" / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "launcher_code", "code", "rank", "words"),
    [
        ({"outcome.json": FINISHED}, 0, "finished", None, "Finished"),
        ({"outcome.json": {"code": "saved", "message": "Saved."}}, 0, "saved", None, "Saved"),
        ({"outcome.json": FINISHED}, -9, "finished", None, "Finished"),
        ({"outcome.json": DIVERGED}, 0, "diverged", 1, "nan"),
        (
            {"ranks.json": {"exits": [RANK_1_CODE_3, RANK_0_LATER]}, "failure-1.json": DIVERGED},
            1,
            "diverged",
            1,
            "nan",
        ),
        (
            {"ranks.json": {"exits": [RANK_1_CODE_3]}},
            1,
            "crashed",
            1,
            "Rank 1 exited with code 3 without giving a reason.",
        ),
        (
            {"ranks.json": {"exits": [RANK_1_KILLED, RANK_0_LATER]}, "failure-0.json": DIVERGED},
            1,
            "crashed",
            1,
            "Rank 1 was killed by SIGKILL, which the kernel sends when memory runs out.",
        ),
        ({"failure-0.json": {"code": "bad_job", "message": "no"}}, 1, "bad_job", 0, "Rank 0: no"),
        ({"failure-3.json": {"code": "out_of_memory", "message": "m"}}, -9, "out_of_memory", 3, "Rank 3"),
        ({}, 0, "crashed", None, "code 0"),
        ({}, -9, "crashed", None, "The launcher was killed by SIGKILL"),
        ({}, -64, "crashed", None, "SIGRTMAX"),
        ({"outcome.json": "{torn", "ranks.json": "[]"}, 1, "crashed", None, "code 1"),
        ({"outcome.json": {"code": "cancelled", "message": "mine"}}, 0, "crashed", None, "mine"),
        ({"outcome.json": {"code": "poison", "message": "mine"}}, 0, "crashed", None, "mine"),
        (
            {"ranks.json": {"exits": [RANK_1_CODE_3]}, "failure-1.json": FINISHED},
            1,
            "crashed",
            1,
            "code 3",
        ),
    ],
)
def test_training(
    tmp_path: Path, files: dict[str, Any], launcher_code: int, code: str, rank: int | None, words: str
) -> None:
    write_files(tmp_path, files)
    end = training_outcome(tmp_path, launcher_code)
    assert (end.code, end.rank) == (code, rank)
    assert words in end.message


@pytest.mark.parametrize(
    ("files", "export_code", "code", "words"),
    [
        ({"manifest": "{}", "outcome.json": FINISHED}, 0, "finished", "exported"),
        ({"outcome.json": FINISHED}, 0, "export_failed", "wrote no manifest"),
        ({"manifest": "{}", "outcome.json": FINISHED}, 3, "export_failed", "code 3"),
        ({"outcome.json": FINISHED}, -15, "export_failed", "SIGTERM"),
        (
            {"failure-0.json": {"code": "checkpoint_invalid", "message": "bad"}},
            1,
            "checkpoint_invalid",
            "bad",
        ),
        ({"outcome.json": {"code": "disk_full", "message": "full"}}, 1, "disk_full", "full"),
    ],
)
def test_export(tmp_path: Path, files: dict[str, Any], export_code: int, code: str, words: str) -> None:
    manifest = files.pop("manifest", None)
    write_files(tmp_path, files)
    if manifest is not None:
        (tmp_path / "out" / "export").mkdir()
        (tmp_path / "out" / "export" / "manifest.json").write_text(manifest)
    end = export_outcome(tmp_path, export_code, step=None)
    assert end.code == code
    assert words in end.message


def test_a_failure_of_the_training_is_not_taken_for_one_of_the_export(tmp_path: Path) -> None:
    write_files(tmp_path, {"outcome.json": FINISHED, "failure-0.json": DIVERGED})
    clear_failures(tmp_path)
    assert export_outcome(tmp_path, 1, step=9).code == "export_failed"


def test_an_outcome_behind_a_symlink_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps(FINISHED))
    write_files(tmp_path, {})
    (tmp_path / "out" / "outcome.json").symlink_to(tmp_path / "elsewhere")
    assert training_outcome(tmp_path, 0).code == "crashed"


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EACCES, "crashed")],
)
def test_an_error_of_the_node_is_a_full_disk_or_a_crash(number: int, code: str) -> None:
    assert node_failure(OSError(number, os.strerror(number))).code == code
