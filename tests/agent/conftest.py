from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.api import ScriptedApi
from tests.agent.machine import Machine


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    api = ScriptedApi()
    yield api
    api.close()


@pytest.fixture
def machine(api: ScriptedApi, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(api, tmp_path)
    yield machine
    machine.close()
