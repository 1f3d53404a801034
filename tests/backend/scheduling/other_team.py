"""A second team that competes for slots, and the guaranteed shares of both."""

from typing import Any

from tests.backend.conftest import Site, upload_letters
from tests.backend.scripted_agent import Scene


class OtherTeam:
    """The team `globex`, with a dataset of its own."""

    def __init__(self, scene: Scene, share: int) -> None:
        self.scene, self.site = scene, Site(scene.site.app, scene.site.other_team("globex"), "globex")
        self.data = {"dataset": upload_letters(self.site)["id"], "tokenizer": {"kind": "bytes"}}
        set_share(scene, share, "globex")

    def submit(self, slots: int = 1) -> str:
        spec = self.scene.spec(slots, data=self.data) | {"name": "secret plan"}
        response = self.site.admin.post(f"{self.site.path}/runs", json=spec)
        assert response.status_code == 201, response.text
        self.site.prepare()
        return str(response.json()["id"])

    def sentence(self, run_id: str) -> str:
        return str(self.site.admin.get(f"{self.site.path}/runs/{run_id}").json()["sentence"])


def set_share(scene: Scene, share: int, team: str = "acme", limit: int = 8) -> dict[str, Any]:
    response = scene.site.admin.put(
        f"/api/v1/teams/{team}/quota/cpu", json={"limit": limit, "guaranteed_slots": share}
    )
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found
