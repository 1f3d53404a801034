"""The command line against a live platform: what a person types, from upload to a downloaded checkpoint."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.live import TEAM, Live, live_platform, small_spec, write_letters
from trainwright.cli import app

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(tmp_path_factory.mktemp("platform") / "data") as running:
        yield running


def run_cli(live: Live, *words: str) -> Result:
    key = live.client.create_key("cli").secret
    environment = {"TRAINWRIGHT_SERVER": live.platform.url, "TRAINWRIGHT_KEY": key, "TRAINWRIGHT_TEAM": TEAM}
    return CliRunner().invoke(app, [str(word) for word in words], env=environment)


def said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_upload_check_submit_follow_and_download(live: Live, tmp_path: Path) -> None:
    dataset = said(run_cli(live, "datasets", "upload", "letters", str(write_letters(tmp_path / "l.jsonl"))))
    assert dataset.startswith("ds_")
    assert "letters" in said(run_cli(live, "datasets", "list"))

    spec = _write_spec(live, dataset, tmp_path)
    assert "parameters" in said(run_cli(live, "runs", "check", spec, "--set", "schedule.steps=12"))
    recipe = (
        "--set",
        "precision.kind=fp8",
        "--set",
        "precision.fp8.level=O1",
        "--set",
        "precision.fp8.skip_limit=0",
    )
    assert "parameters" in said(run_cli(live, "runs", "check", spec, *recipe))
    run, sentence = said(
        run_cli(live, "runs", "submit", spec, "--set", "schedule.steps=12", "--wait")
    ).splitlines()
    assert run.startswith("run_")
    assert sentence
    shown = json.loads(said(run_cli(live, "runs", "show", run)))
    assert (shown["state"], shown["summary"]["step"]) == ("succeeded", 12)
    assert run in said(run_cli(live, "runs", "list", "--state", "succeeded")).replace("\n", "")
    assert "step 10" in said(run_cli(live, "runs", "logs", run))
    assert "export" in said(run_cli(live, "runs", "checkpoints", run))
    assert len(said(run_cli(live, "runs", "events", run)).splitlines()) >= 6

    folder = tmp_path / "export"
    assert said(run_cli(live, "runs", "download", run, str(folder))) == str(folder)
    assert (folder / "model.safetensors").exists()
    said(run_cli(live, "runs", "delete", run))
    said(run_cli(live, "datasets", "delete", dataset))


def test_mistakes_are_told_in_a_sentence(live: Live, tmp_path: Path) -> None:
    spec = _write_spec(live, "ds_unknown", tmp_path)
    for words, expected in [
        (("runs", "check", spec, "--set", "optimizer.lerning_rate=1"), "Did you mean 'learning_rate'?"),
        (
            ("runs", "check", spec, "--set", "precision.kind=fp8", "--set", "precision.fp8.levle=O1"),
            "'level'",
        ),
        (("runs", "check", spec, "--set", "precision.fp8.level=O1"), "set precision.kind to fp8 too"),
        (("runs", "check", spec, "--set", "name.first=x"), "is a value, not a section"),
        (("runs", "submit", spec), "data.dataset"),
        (("runs", "show", "run_nonsense"), "run"),
        (("datasets", "upload", "x", str(tmp_path / "missing.jsonl")), "missing.jsonl"),
        (("runs", "check", str(tmp_path / "none.json")), "none.json: No such file or directory."),
    ]:
        result = run_cli(live, *words)
        assert result.exit_code != 0, words
        assert expected in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception


def test_waiting_for_an_upload_ends_with_what_became_of_it(live: Live, tmp_path: Path) -> None:
    good = run_cli(live, "datasets", "upload", "good", write_letters(tmp_path / "l.jsonl"), "--wait")
    assert "ready" in said(good)
    bad = tmp_path / "bad.jsonl"
    bad.write_text("broken\n" * 3)
    failed = run_cli(live, "datasets", "upload", "bad", bad, "--wait")
    assert failed.exit_code == 1 and failed.stdout.startswith("ds_")
    assert "all 3 rows were rejected" in failed.output
    looked = run_cli(live, "datasets", "preview", bad)
    assert looked.exit_code == 1 and "Nothing here can be read" in looked.output
    assert run_cli(live, "datasets", "preview", tmp_path / "l.jsonl").exit_code == 0


def _write_spec(live: Live, dataset: str, folder: Path) -> str:
    content: dict[str, Any] = small_spec(live.team.datasets()[0]) if live.team.datasets() else {}
    data = {"dataset": dataset, "tokenizer": {"kind": "bytes"}, "validation_fraction": 0.1}
    # A copied configuration names what it does not use as null.
    content = content | {"name": "by hand", "data": data, "precision": {"kind": "fp32", "fp8": None}}
    file = folder / "spec.json"
    file.write_text(json.dumps(content))
    return str(file)


def test_a_node_is_drained_and_a_run_that_waits_is_paused_and_resumed(live: Live, tmp_path: Path) -> None:
    dataset = said(run_cli(live, "datasets", "upload", "more", str(write_letters(tmp_path / "m.jsonl"))))
    spec = _write_spec(live, dataset, tmp_path)
    (node,) = live.client.nodes()
    assert (
        f"There is no node 'gpu-99'. There is {node.name}."
        in run_cli(live, "nodes", "drain", "gpu-99").stderr
    )
    assert "gets no new runs" in said(run_cli(live, "nodes", "drain", node.name))
    assert "drained" in said(run_cli(live, "nodes", "list"))
    runs = [said(run_cli(live, "runs", "submit", spec)) for _ in range(2)]
    assert said(run_cli(live, "runs", "pause", *runs)).count("Paused before its first step") == 2
    assert [line.split()[0] for line in said(run_cli(live, "runs", "resume", *runs)).splitlines()] == runs
    refused = run_cli(live, "runs", "resume", *runs)
    assert refused.exit_code == 1
    assert "only a paused run can be resumed" in refused.stderr
    for run in runs:
        said(run_cli(live, "runs", "cancel", run))
    assert "takes runs again" in said(run_cli(live, "nodes", "undrain", node.id))
