"""Stock schemathesis against a server: every operation of the OpenAPI document, with all checks, and in sequences.

It looks for server errors, responses that differ from the document, invalid input that is accepted, and operations that
answer without credentials.
"""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.backend.access.conftest import create_rows
from tests.backend.scripted_agent import Agent, Scene
from tests.backend.uploads.faults import Server

CONFIG = Path(__file__).with_name("schemathesis.toml")
COMMAND = Path(sys.executable).with_name("schemathesis")
MAX_SECONDS = 150


@pytest.mark.slow(target="databases")
@pytest.mark.timeout(4 * MAX_SECONDS)
def test_every_operation_answers_as_the_document_says(scene: Scene, tmp_path: Path) -> None:
    create_rows(scene)
    spare_key = scene.site.admin.post("/api/v1/me/keys", json={"name": "spare"}).json()["id"]
    Agent.join(scene.site, "spare")
    nodes = scene.site.admin.get("/api/v1/nodes").json()
    secrets = {
        "TRAINWRIGHT_SPARE_KEY": spare_key,
        "TRAINWRIGHT_SPARE_NODE": next(node["id"] for node in nodes if node["name"] == "spare"),
        "TRAINWRIGHT_KEY": _token(scene.site.admin.headers["Authorization"]),
        "TRAINWRIGHT_NODE_TOKEN": _token(scene.agent.client.headers["Authorization"]),
    }
    with Server(scene.site.app.state.settings) as server:
        document = f"http://127.0.0.1:{server.port}/api/v1/openapi.json"
        httpx.get(document, timeout=100).raise_for_status()  # once the server has started
        chosen = ["--phases", "examples,coverage,fuzzing,stateful", "--checks", "all", "--seed", "1"]
        bounds = ["--max-examples", "10", "--max-time", str(MAX_SECONDS), "--no-shrink"]
        found = subprocess.run(
            [COMMAND, "--no-color", "--config-file", CONFIG, "run", document, *chosen, *bounds],
            cwd=tmp_path,
            env=os.environ | secrets,
            capture_output=True,
            text=True,
            check=False,
        )
    print(found.stdout)
    assert found.returncode == 0, found.stdout + found.stderr


def _token(header: str) -> str:
    return header.removeprefix("Bearer ")
