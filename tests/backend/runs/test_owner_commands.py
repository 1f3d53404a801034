"""Commands of owners and operators: the audit log and webhooks."""

import json
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from tests.backend.conftest import SECRET
from tests.backend.runs.conftest import Served
from tests.backend.scripted_agent import Scene
from trainwright_backend import cli


def test_owners_list_search_and_export_the_log(scene: Scene, served: Served, tmp_path: Path) -> None:
    key = scene.site.admin.headers["Authorization"].removeprefix("Bearer ")
    run_id = scene.submit(name="pilot")
    assert served.command(key, f"audit list --search {run_id}/cancel").output == "No entries.\n"
    scene.cancel(run_id)
    heading, newest, *_ = served.command(key, "audit list").output.splitlines()
    assert heading.split() == ["time", "who", "what", "via", "from"]
    assert " Ada Cancelled run pilot key test (tw_" in " ".join(newest.split())
    listed = served.command(key, f"audit list --search {run_id} --json").output
    entry, submission = json.loads(listed)["items"]
    assert submission["action"] == "submit_run"
    assert entry["path"].endswith(f"{run_id}/cancel") and entry["action"] == "cancel_run"
    file = tmp_path / "log.jsonl"
    assert served.command(key, f"audit export {file}").exit_code == 0
    assert json.loads(file.read_text().splitlines()[-1])["sequence"] == entry["sequence"]


def test_the_operator_verifies_the_chains(scene: Scene) -> None:
    scene.submit()
    environment = {
        "TRAINWRIGHT_SECRET_KEY": SECRET.get_secret_value(),
        "TRAINWRIGHT_DATABASE_URL": scene.database.url,
    }
    whole = CliRunner().invoke(cli.app, ["audit", "verify"], env=environment)
    assert whole.exit_code == 0 and "the audit log is intact" in whole.output
    head, *chains = whole.output.splitlines()[:-1]
    assert head.split() == ["log", "of", "entries", "hash", "of", "the", "last", "one"]
    assert [line.split()[:2] for line in chains] == [["the", "site"], ["team", scene.site.team]]
    assert len(chains[1].split()[-1]) == 64
    with scene.database.write() as session:
        session.execute(text("UPDATE audit_head SET sequence = sequence + 1"))
    broken = CliRunner().invoke(cli.app, ["audit", "verify"], env=environment)
    assert broken.exit_code == 1 and "The log of the site is broken at entry" in broken.output


@pytest.mark.slow(target="databases")
def test_owners_manage_webhooks_by_command(scene: Scene, served: Served) -> None:
    key = scene.site.admin.headers["Authorization"].removeprefix("Bearer ")
    made = served.command(key, "webhooks create https://example.org/hook --event run.failed")
    assert made.exit_code == 0 and made.output.startswith("whsec_")
    [line] = [line for line in served.command(key, "webhooks list").output.splitlines() if "hook_" in line]
    hook = line.split()[0]
    assert "https://example.org/hook" in line and "run.failed" in line
    assert served.command(key, f"webhooks test {hook}").output.startswith("msg_")
    assert "test, not delivered" in served.command(key, "webhooks list").output
    assert served.command(key, f"webhooks delete {hook}").exit_code == 0
    assert hook not in served.command(key, "webhooks list").output
