from collections.abc import Callable, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from tests.backend.scripted_agent import Scene, patient_settings, scene
from trainwright_backend.core.settings import Settings
from trainwright_backend.monitoring.exposition import Exposition

__all__ = ["patient_settings", "scene"]

TOKEN = "the token of the server that scrapes"


class Scraped(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """Values by the name and the labels of their sample."""

    def of(self, name: str, **labels: str) -> float | None:
        return self.get((f"trainwright_{name}", frozenset(labels.items())))

    def labelled(self, name: str) -> dict[tuple[str, ...], float]:
        """All values of a name that are not 0, by their labels' values in the order of the labels' names."""
        return {
            tuple(value for _, value in sorted(labels)): number
            for (found, labels), number in self.items()
            if found == f"trainwright_{name}" and number
        }

    def since(self, before: Mapping[tuple[str, frozenset[tuple[str, str]]], float]) -> "Scraped":
        """The increase of each value. Counts belong to the process, so earlier tests have counted too."""
        return Scraped({key: value - before.get(key, 0.0) for key, value in self.items()})


Scrape = Callable[[], Scraped]


@pytest.fixture
def settings(patient_settings: Settings) -> Settings:
    return patient_settings.model_copy(update={"metrics_token": SecretStr(TOKEN)})


@pytest.fixture
def scrape(scene: Scene, settings: Settings) -> Scrape:
    """Reads `/metrics` as Prometheus does, without the cache."""
    app, client = scene.site.app, scene.site.anonymous()
    client.headers["Authorization"] = f"Bearer {TOKEN}"

    def read() -> Scraped:
        app.state.exposition = Exposition(app.state.database, settings, lambda: [], lambda: 0.0)
        response = client.get("/metrics")
        assert response.status_code == 200, response.text
        return parse(response.text)

    return read


def parse(text: str) -> Scraped:
    found = Scraped()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found
