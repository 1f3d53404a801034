"""Recipes are saved by name, validated as far as possible without data, and visible to one team."""

from typing import Any

import pytest

from tests.backend.conftest import Site
from trainwright.commands.recipes import without_name_and_dataset
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.ids import new_id, parse_id
from trainwright_backend.runs import recipes
from trainwright_backend.runs.tables import Recipe

SPEC = {
    "model": {"width": 64, "heads": 4},
    "data": {"tokenizer": {"kind": "bytes"}},
    "schedule": {"steps": 50, "warmup_steps": 5},
}


def save(site: Site, spec: dict[str, Any] = SPEC, name: str = "small") -> Any:
    return site.admin.post(f"{site.path}/recipes", json={"name": name, "spec": spec})


def listed(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.admin.get(f"{site.path}/recipes").json()
    return found


def test_a_recipe_is_stored_as_given(site: Site) -> None:
    response = save(site)
    assert response.status_code == 201, response.text
    assert listed(site) == [response.json()]
    kept = listed(site)[0]
    assert (kept["name"], kept["spec"], kept["problems"], kept["saved_by"]) == ("small", SPEC, [], "Ada")


@pytest.mark.both_databases
def test_the_same_name_replaces_and_names_are_in_order(site: Site) -> None:
    first = save(site).json()
    save(site, name="large")
    again = save(site, {"seed": 3}).json()
    assert again["id"] == first["id"] and again["saved"] > first["saved"]
    assert [(item["name"], item["spec"]) for item in listed(site)] == [
        ("large", SPEC),
        ("small", {"seed": 3}),
    ]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"model": {"widht": 64}}, "model.widht", "Did you mean 'width'?"),
    ({"model": {"width": 63}}, "model.width", "63"),
    ({"schedule": {"steps": 5, "warmup_steps": 9}}, "schedule.warmup_steps", "less than steps"),
    ({"parallelism": {"tensor": 3}}, "parallelism.tensor", "does not divide"),
    ({"name": "mine"}, "name", "chosen with each run"),
    ({"data": {"dataset": "ds_x"}}, "data.dataset", "chosen with each run"),
    ({"data": {"version": 2}}, "data.version", "chosen with each run"),
    ({"data": "letters"}, "data", "Write an object"),
    ({"data": None}, "data", "Write an object"),
]


def test_a_recipe_that_no_run_could_use_is_refused_at_its_field(site: Site) -> None:
    for spec, field, hint in REFUSED:
        response = save(site, spec)
        assert response.status_code == 422
        assert response.json()["errors"][0]["field"] == field
        assert hint in response.json()["errors"][0]["message"]
    assert listed(site) == []


@pytest.mark.both_databases
def test_a_recipe_shows_what_a_later_version_refuses(site: Site, database: Database) -> None:
    team = save(site).json()
    with database.write() as session:
        mine = session.get_one(Recipe, parse_id("recipe", team["id"]))
        old = {"optimizer": {"kind": "sgd"}}
        session.add(
            Recipe(id=new_id(), team_id=mine.team_id, name="old", spec=old, saved=now(), saved_by_name="Ada")
        )
    assert [problem["field"] for problem in listed(site)[0]["problems"]] == ["optimizer.kind"]
    assert listed(site)[1]["problems"] == []


@pytest.mark.both_databases
def test_a_recipe_can_be_deleted_once(site: Site) -> None:
    path = f"{site.path}/recipes/{save(site).json()['id']}"
    assert site.admin.delete(path).status_code == 204
    assert listed(site) == []
    assert site.admin.delete(path).status_code == 404


def test_recipes_belong_to_a_team(site: Site) -> None:
    recipe = save(site).json()["id"]
    stranger = site.other_team("globex")
    assert stranger.get("/api/v1/teams/globex/recipes").json() == []
    assert stranger.delete(f"/api/v1/teams/globex/recipes/{recipe}").status_code == 404
    viewer = site.member("viewer")
    assert viewer.get(f"{site.path}/recipes").json() == listed(site)
    assert viewer.delete(f"{site.path}/recipes/{recipe}").status_code == 403


@pytest.mark.both_databases
def test_a_team_cannot_save_more_recipes_than_the_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "MAX_RECIPES", 1)
    assert save(site).status_code == 201
    assert save(site, name="second").json()["code"] == "too_many_recipes"
    assert save(site, {"seed": 1}).status_code == 201, "replacing needs no additional space"
    assert [item["name"] for item in listed(site)] == ["small"]


def test_the_command_omits_fields_that_are_chosen_with_each_run() -> None:
    spec = {"name": "mine", "data": {"dataset": "ds_x", "version": 2, "validation_fraction": 0.1}, "seed": 1}
    assert without_name_and_dataset(spec) == {"data": {"validation_fraction": 0.1}, "seed": 1}
