"""The browser tests: Playwright drives Chromium against a live platform, one for each of them."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.live import EMAIL, Live, live_platform, write_letters


@pytest.mark.timeout(420)
def test_a_person_trains_a_model_in_the_browser(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data") as live:
        drive(repository, live, "main.spec.ts")


@pytest.mark.timeout(420)
def test_a_person_reads_what_fp8_does_to_a_run(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data") as live:
        live.team.upload("letters", [write_letters(tmp_path / "letters.jsonl")])
        drive(repository, live, "fp8.spec.ts")


def drive(repository: Path, live: Live, spec: str) -> None:
    environment = os.environ | {
        "TRAINWRIGHT_E2E_URL": live.platform.url,
        "TRAINWRIGHT_E2E_LINK": live.platform.command("link", "sign-in", EMAIL).strip(),
    }
    node = [str(repository / "infra" / "with-node.sh"), "npm", "run", "e2e", "--", spec]
    done = subprocess.run(node, cwd=repository, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
