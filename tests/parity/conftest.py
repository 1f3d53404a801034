"""Data and one-process trainings shared by the cells."""

from pathlib import Path

import pytest

from tests.parity.learning import prepare


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of byte-level shards."""
    return prepare(tmp_path_factory.mktemp("parity"))
