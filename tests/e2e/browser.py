"""Chromium, driven by Playwright, signed in to a live platform for one test's own team."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.live import EMAIL, Live
from trainwright.client import TeamClient

ONE_SLOT = {"device": "cpu", "slots_per_node": 1}

AUDITED = pytest.param("audited", marks=pytest.mark.slow(target="browsers"))
"""The test with a screenshot and an axe check of each state, in every size and color scheme."""

only_audited = pytest.mark.parametrize("browser", [AUDITED], indirect=True)
"""Marks the test as one of ``make browsers``."""


@dataclass(frozen=True)
class Browser:
    """Runs specs in Chromium for a team that no other test uses."""

    live: Live
    team: TeamClient
    slug: str
    audited: bool
    root: Path = field(repr=False)
    """Of the repository."""

    def run(self, spec: str, environment: Mapping[str, str] | None = None, seconds: float = 700) -> None:
        """Run a spec file; fails with its output. ``environment`` has what the spec reads besides the team."""
        given = os.environ | {
            "TRAINWRIGHT_E2E_URL": self.live.platform.url,
            "TRAINWRIGHT_E2E_LINK": self.live.platform.command("link", "sign-in", EMAIL).strip(),
            "TRAINWRIGHT_E2E_TEAM": self.slug,
            "TRAINWRIGHT_E2E_AUDIT": "1" if self.audited else "",
            **(environment or {}),
        }
        # Playwright empties its output folder first, even while another spec writes there.
        output = ["--output", str(self.root / "tests" / "e2e" / "test-results" / spec)]
        command = [str(self.root / "infra" / "with-node.sh"), "npm", "run", "e2e", "--", spec, *output]
        done = subprocess.run(
            command, cwd=self.root, env=given, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
