"""A real identity provider for tests: the certified npm package `oidc-provider`, started on loopback, and a person at it."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx

CLIENT_ID, CLIENT_SECRET = "trainwright", "a secret & more"
SCRIPT = Path(__file__).with_suffix(".mjs")


@contextmanager
def certified_provider(repository: Path, accounts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The issuer of a running provider with these accounts, each the claims of a subject."""
    command = [str(repository / "infra" / "with-node.sh"), "node", str(SCRIPT)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(json.dumps(accounts) + "\n")
        process.stdin.flush()
        issuer = process.stdout.readline().strip()
        assert issuer.startswith("http://127.0.0.1:"), process.communicate()
        yield issuer
        process.communicate(timeout=10)


def sign_in_at(provider_url: str, login: str) -> dict[str, str]:
    """What the provider adds to the redirect address after a person signed in there and consented."""
    with httpx.Client() as browser:
        response = browser.get(provider_url)
        for prompt in ({"prompt": "login", "login": login, "password": "any"}, {"prompt": "consent"}):
            page = _follow(browser, response)
            response = browser.post(page, data=prompt)
        return {
            key: values[0] for key, values in parse_qs(urlsplit(_follow(browser, response)).query).items()
        }


def refuse_at(provider_url: str) -> dict[str, str]:
    """What the provider adds to the redirect address if the person cancels."""
    with httpx.Client() as browser:
        page = _follow(browser, browser.get(provider_url))
        response = browser.get(f"{page}/abort")
        return {
            key: values[0] for key, values in parse_qs(urlsplit(_follow(browser, response)).query).items()
        }


def _follow(browser: httpx.Client, response: httpx.Response) -> str:
    """The address of the page, or outside the provider, to which redirects lead."""
    provider = response.url.netloc
    while response.is_redirect:
        target = urljoin(str(response.url), response.headers["location"])
        if httpx.URL(target).netloc != provider:
            return target
        response = browser.get(target)
    assert response.status_code == 200, response.text
    return str(response.url)
