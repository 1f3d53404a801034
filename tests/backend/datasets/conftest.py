"""Fixtures of the datasets' tests."""

import pytest

from tests.backend.conftest import Site
from tests.backend.datasets.desk import Desk


@pytest.fixture
def desk(site: Site) -> Desk:
    return Desk(site)
