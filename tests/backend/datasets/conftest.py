"""Fixtures of the dataset tests."""

import pytest

from tests.backend.conftest import Site
from tests.backend.datasets.dataset_editor import DatasetEditor


@pytest.fixture
def editor(site: Site) -> DatasetEditor:
    return DatasetEditor(site)
