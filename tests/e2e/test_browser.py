"""The browser test: Playwright drives Chromium against a live platform."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.live import EMAIL, live_platform


@pytest.mark.timeout(420)
def test_a_person_trains_a_model_in_the_browser(repository: Path, tmp_path: Path) -> None:
    with live_platform(tmp_path / "data") as live:
        environment = os.environ | {
            "TRAINWRIGHT_E2E_URL": live.platform.url,
            "TRAINWRIGHT_E2E_LINK": live.platform.command("link", "sign-in", EMAIL).strip(),
        }
        node = [str(repository / "infra" / "with-node.sh"), "npm", "run", "e2e"]
        done = subprocess.run(
            node, cwd=repository, env=environment, capture_output=True, text=True, timeout=400
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
