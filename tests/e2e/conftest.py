"""A browser for each test. The tests of a file share its live platform, and each has a team of its own there."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browser import AUDITED, Browser
from tests.live import Live, end_runs, new_team


@pytest.fixture(params=["quick", AUDITED])
def browser(request: pytest.FixtureRequest, live: Live, repository: Path) -> Iterator[Browser]:
    slug = f"team-{secrets.token_hex(3)}"
    team = new_team(live, slug)
    yield Browser(live, team, slug, audited=request.param == "audited", root=repository)
    end_runs(team)
