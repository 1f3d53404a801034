"""A session shows on which device it is used, from where, and when."""

import pytest

from tests.backend.auth.test_sign_in import sign_in
from tests.backend.conftest import Site
from trainwright_backend.auth.devices import LONGEST, device_name

CHROME = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36"
)


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (CHROME, "Chrome on Linux"),
        (CHROME + " Edg/141.0.0.0", "Edge on Linux"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0",
            "Firefox on Windows",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
            "Version/18.0 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
        ),
        (
            "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Mobile Safari/537.36",
            "Chrome on Android",
        ),
        ("python-httpx/0.28.1", "python-httpx/0.28.1"),
        ("", ""),
        ("\x00" + "x" * 500, "x" * LONGEST),
    ],
)
def test_devices_are_named_by_browser_and_system(user_agent: str, name: str) -> None:
    assert device_name(user_agent) == name


@pytest.mark.both_databases
def test_a_session_names_its_device_and_last_use(site: Site) -> None:
    browser = site.anonymous()
    browser.headers["user-agent"] = CHROME
    assert sign_in(browser) == 200
    browser.get("/api/v1/me")
    (mine,) = (session for session in browser.get("/api/v1/me/sessions").json() if session["current"])
    assert (mine["device"], mine["address"]) == ("Chrome on Linux", "testclient")
    assert mine["last_used"] >= mine["created"]
