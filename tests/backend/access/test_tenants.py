"""Whatever other teams do, a team's lists, counts, details, usage, queue and audit log stay the same.

What may differ is when a waiting run starts, because teams share the nodes. Even so, no response ever contains a name or an
id of another team.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from sqlalchemy import select

from tests.backend.access.conftest import OTHER_TEAM, create_rows
from tests.backend.access.rules import EXPECTED, ROLES, Ids, call, routes
from tests.backend.conftest import Site, send_file, upload_letters
from tests.backend.scripted_agent import Scene
from trainwright_backend.auth.tables import Team
from trainwright_backend.runs import recipes

CANARY = "zebra"
"""In every name that the other team gives."""

SHARED = {"expected_start", "sentence", "waiting_reason"}
"""Fields of a waiting run that depend on the nodes, which teams share."""

LIMITED = "GET /api/v1/me/device/{user_code}"
"""It concerns no team, and guesses of codes are limited in number."""

VOLATILE = {"last_used", "request_id"}
LINK = re.compile(r"/blobs/[\w.-]+")


@dataclass
class Tenant:
    """A team, as its owner acts and sees it."""

    scene: Scene
    prefix: str
    rows: Ids
    made: int = 0

    def name(self) -> str:
        self.made += 1
        return f"{self.prefix} {self.made}"

    def post(self, path: str, **body: Any) -> Any:
        return self._checked(self.scene.site.admin.post(f"{self.scene.site.path}/{path}", json=body))

    def change(self, method: str, path: str, **body: Any) -> Any:
        response = self.scene.site.admin.request(method, f"{self.scene.site.path}/{path}", json=body)
        return self._checked(response)

    def run_ids(self) -> list[str]:
        return [str(run["id"]) for run in self._items("runs")]

    def pick(self, path: str, number: int) -> str | None:
        """The id of one of the team's rows."""
        items = self._items(path)
        return str(items[number % len(items)]["id"]) if items else None

    def _items(self, path: str) -> list[dict[str, Any]]:
        found = self.scene.site.admin.get(f"{self.scene.site.path}/{path}").json()
        return list(found["items"] if isinstance(found, dict) else found)

    def _checked(self, response: Any) -> Any:
        assert response.status_code < 500, response.text
        return response


Action = Callable[[Tenant, int], object]


def submit(team: Tenant, number: int) -> None:
    priority = ("low", "normal", "high")[number % 3]
    team.post(f"runs?priority={priority}", **team.scene.spec(1 + number % 2) | {"name": team.name()})


def upload(team: Tenant, number: int) -> None:
    send_file(team.scene.site.admin, team.scene.site.path, f"{team.prefix}.txt", b"text " * (1 + number))


def create_dataset(team: Tenant, number: int) -> None:
    upload_letters(team.scene.site, team.name(), ready=False)


def save_recipe(team: Tenant, number: int) -> None:
    team.post("recipes", name=team.name(), spec={"schedule": {"steps": 1 + number}})


def save_view(team: Tenant, number: int) -> None:
    team.post("views", name=team.name(), view={"q": team.prefix})


def create_webhook(team: Tenant, number: int) -> None:
    team.post("webhooks", url=f"https://{team.prefix.replace(' ', '-')}-{number}.example.com/")


def invite(team: Tenant, number: int) -> None:
    team.post("invitations", email=f"{team.prefix.replace(' ', '-')}-{number}@example.com", role="viewer")


def rename_team(team: Tenant, number: int) -> None:
    team.change("PATCH", "", name=team.name())


def _to_a_run(action: str, *, method: str = "POST", **body: Any) -> Action:
    def act(team: Tenant, number: int) -> None:
        run = team.pick("runs", number)
        if run is not None and run != team.rows["run"]:
            filled = {name: team.name() if value is ... else value for name, value in body.items()}
            team.change(method, f"runs/{run}{action}", **filled)

    return act


def _delete(path: str, kind: str) -> Action:
    def act(team: Tenant, number: int) -> None:
        found = team.pick(path, number)
        if found is not None and found != team.rows[kind]:
            team.change("DELETE", f"{path}/{found}")

    return act


ACTIONS: dict[str, Action] = {
    "submit": submit,
    "upload": upload,
    "create a dataset": create_dataset,
    "save a recipe": save_recipe,
    "save a view": save_view,
    "create a webhook": create_webhook,
    "invite": invite,
    "rename the team": rename_team,
    "cancel": _to_a_run("/cancel"),
    "pause": _to_a_run("/pause"),
    "resume": _to_a_run("/resume"),
    "clone": _to_a_run("/clone", name=...),
    "edit": _to_a_run("", method="PATCH", name=..., notes=...),
    "delete a run": _to_a_run("", method="DELETE"),
    "delete a dataset": _delete("datasets", "dataset"),
    "delete a recipe": _delete("recipes", "recipe"),
    "delete a webhook": _delete("webhooks", "webhook"),
}


SOME_ACTIONS = st.lists(
    st.tuples(st.sampled_from(sorted(ACTIONS)), st.integers(0, 99)), min_size=2, max_size=5
)
"""Several before each comparison, because reading everything takes longer than they do."""


def view(app: FastAPI, team: Tenant) -> dict[str, str]:
    """All that the team's owner can read, by route."""
    return {
        route: call(team.scene.site.admin, route, team.rows).text
        for route, _ in routes(app)
        if route.startswith("GET ") and EXPECTED[route] in {*ROLES, "signed in"} and route != LIMITED
    }


def changes(before: dict[str, str], after: dict[str, str]) -> list[tuple[str, str, str]]:
    """The responses that changed, apart from what teams share."""
    pairs = ((route, comparable(before[route]), comparable(after[route])) for route in before)
    return [(route, old, new) for route, old, new in pairs if old != new]


def comparable(text: str) -> str:
    """A response without what depends on the nodes or on the moment."""
    try:
        return json.dumps(_without_shared(json.loads(text)))
    except ValueError:
        return LINK.sub("/blobs/…", text)


def _without_shared(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_shared(item) for name, item in value.items() if name not in SHARED | VOLATILE}
    if isinstance(value, list):
        return [_without_shared(item) for item in value]
    return LINK.sub("/blobs/…", value) if isinstance(value, str) else value


@pytest.fixture
def tenants(scene: Scene) -> tuple[Tenant, Tenant]:
    """A team that acts, and another one that must not notice."""
    owner = scene.site.other_team(OTHER_TEAM)
    site = Site(scene.site.app, owner, OTHER_TEAM)
    dataset = upload_letters(site, ready=False)["id"]
    own = Scene(site, scene.control, scene.agent, dataset)
    first = own.submit()  # creates the preparation
    site.prepare()
    assert own.cancel(first).status_code == 202
    return Tenant(scene, CANARY, create_rows(scene)), Tenant(own, "own", create_rows(own))


def run_machine(app: FastAPI, tenants: tuple[Tenant, Tenant], examples: int) -> None:
    others, own = tenants

    class Teams(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            self.seen = view(app, own)

        @rule(actions=SOME_ACTIONS)
        def others_act(self, actions: list[tuple[str, int]]) -> None:
            for action, number in actions:
                ACTIONS[action](others, number)
            assert changes(self.seen, view(app, own)) == []

        @rule(actions=SOME_ACTIONS)
        def act(self, actions: list[tuple[str, int]]) -> None:
            for action, number in actions:
                ACTIONS[action](own, number)
            self.look()

        @rule(number=st.integers(0, 9))
        def work_goes_on(self, number: int) -> None:
            """The platform reads new datasets and places runs, and the node ends one of those that it gets."""
            scene = others.scene
            scene.site.prepare()
            scene.control.sweep()
            for placement in scene.agent.heartbeat()[number:][:1]:
                scene.agent.claim(placement["run_id"]).finish(10)
            self.look()

        def look(self) -> None:
            self.seen = view(app, own)
            secrets = [CANARY, *others.run_ids()]
            assert not [text for text in self.seen.values() if any(secret in text for secret in secrets)]

    run_state_machine_as_test(
        Teams,
        settings=settings(
            max_examples=examples,
            stateful_step_count=8,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(3_600)
@pytest.mark.slow(target="databases")
def test_a_team_never_notices_what_another_team_does(app: FastAPI, tenants: tuple[Tenant, Tenant]) -> None:
    run_machine(app, tenants, examples=30)


@pytest.mark.slow(target="databases")
def test_the_comparison_notices_a_leak(
    app: FastAPI, tenants: tuple[Tenant, Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    others, own = tenants
    before = view(app, own)
    assert changes(before, view(app, own)) == []
    with app.state.database.read() as session:
        team_id = session.scalars(select(Team.id).where(Team.slug == others.scene.site.team)).one()
    of_team = recipes.list_recipes
    leaky = lambda session, asked: [*of_team(session, asked), *of_team(session, team_id)]  # noqa: E731
    monkeypatch.setattr(recipes, "list_recipes", leaky)
    (changed,) = changes(before, view(app, own))
    assert changed[0] == "GET /api/v1/teams/{team}/recipes" and "small" in changed[2]
