"""Browser test of sign-in with a certified identity provider, and of approving a program that waits for a key."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certified_provider import CLIENT_ID, CLIENT_SECRET, certified_provider
from tests.e2e.browser import Browser, only_audited
from tests.live import PATIENT_TIMERS, TEAM, Live, live_platform
from trainwright.client import Client
from trainwright.contracts.api.people import KeyScope

GRACE = {"email": "grace@lab.example", "email_verified": True, "name": "Grace", "groups": ["lab"]}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def live(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with certified_provider(repository, {"grace": GRACE}) as issuer:
        settings = {
            "TRAINWRIGHT_OIDC_ISSUER": issuer,
            "TRAINWRIGHT_OIDC_CLIENT_ID": CLIENT_ID,
            "TRAINWRIGHT_OIDC_CLIENT_SECRET": CLIENT_SECRET,
            "TRAINWRIGHT_OIDC_NAME": "Lab login",
            "TRAINWRIGHT_OIDC_GROUPS": json.dumps({"lab": {TEAM: "editor"}}),
        }
        with live_platform(
            tmp_path_factory.mktemp("platform") / "data", PATIENT_TIMERS, settings=settings
        ) as running:
            yield running


@only_audited
def test_a_person_signs_in_with_the_provider_and_approves_a_program(live: Live, browser: Browser) -> None:
    with Client(live.platform.url) as program:
        asked = program.start_device_login("trainwright on gpu-07", KeyScope.SUBMIT)
        browser.run("identity-provider.spec.ts", {"TRAINWRIGHT_E2E_CODE": asked.user_code})
        key = program.redeem_device_code(asked.device_code)
    with Client(live.platform.url, key.secret) as client:
        me = client.me()
    assert (me.email, [(team.slug, team.role) for team in me.teams]) == (GRACE["email"], [(TEAM, "editor")])
