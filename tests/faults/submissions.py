"""What a server that is in trouble answers to submissions."""

import time
from collections.abc import Mapping
from typing import Any

import httpx

from tests.live import TEAM, Live


def submission_codes(live: Live, key: str, spec: Mapping[str, Any], seconds: float) -> list[int]:
    """Status codes of submissions, one after another. A refusal must say when to try again."""
    codes = []
    url = f"{live.platform.url}/api/v1/teams/{TEAM}/runs"
    until = time.monotonic() + seconds
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
        while not codes or time.monotonic() < until:
            response = client.post(url, json=spec)
            assert response.status_code != 503 or "Retry-After" in response.headers
            codes.append(response.status_code)
    return codes
