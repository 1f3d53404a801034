"""Runs in groups, in exported files, and in the views that people save."""

import csv
import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import update

from tests.backend.runs.conftest import Served
from tests.backend.scripted_agent import Scene
from trainwright.client import Client
from trainwright_backend.datasets.tables import Dataset
from trainwright_backend.runs import saved_views, table_export

WIDE = {"width": 128, "layers": 3, "heads": 4}


@pytest.fixture
def runs(scene: Scene) -> dict[str, str]:
    """Four runs of two sizes; two have tags, and one trains."""
    made = {
        "best": scene.submit(name="best", model=WIDE),
        "plain": scene.submit(name="plain"),
        "tagged": scene.submit(name="tagged"),
    }
    for run_id in made.values():
        scene.cancel(run_id)
    work = scene.running(last_step=4, name="live", model=WIDE)
    made["live"] = work.run_id
    edit(scene, made["tagged"], tags=["a", "b"])
    edit(scene, made["live"], tags=["a"])
    return made


def edit(scene: Scene, run_id: str, **change: Any) -> None:
    assert scene.site.admin.patch(f"{scene.runs}/{run_id}", json=change).status_code == 200


def groups(scene: Scene, group: str, **query: Any) -> dict[str, tuple[int, int, float | None]]:
    response = scene.site.admin.get(f"{scene.runs}/groups", params={"group": group} | query)
    assert response.status_code == 200, response.text
    return {item["key"]: (item["runs"], item["live"], item["best_loss"]) for item in response.json()["items"]}


def listed(scene: Scene, **query: Any) -> set[str]:
    return {run["name"] for run in scene.site.admin.get(scene.runs, params=query).json()["items"]}


@pytest.mark.both_databases
def test_each_group_counts_the_runs_that_its_filter_lists(scene: Scene, runs: dict[str, str]) -> None:
    model = scene.show(runs["plain"])["spec"]["model"]
    small = f"{model['layers']}x{model['width']}"
    assert groups(scene, "model") == {"3x128": (2, 1, 0.25), small: (2, 0, None)}
    assert listed(scene, model="3x128") == {"best", "live"}
    assert groups(scene, "tag") == {"a": (2, 1, 0.25), "b": (1, 0, None), "": (2, 0, None)}
    assert listed(scene, tag="a") == {"tagged", "live"}
    assert listed(scene, untagged="true") == {"best", "plain"}
    assert groups(scene, "state") == {"running": (1, 1, 0.25), "cancelled": (3, 0, None)}
    assert groups(scene, "dataset") == {scene.dataset: (4, 1, 0.25)}
    assert listed(scene, dataset=scene.dataset, model=small) == {"plain", "tagged"}
    assert listed(scene, dataset="ds_none") == set()
    assert groups(scene, "model", state="cancelled") == {"3x128": (1, 0, None), small: (2, 0, None)}
    assert groups(scene, "tag", q="live") == {"a": (1, 1, 0.25)}
    assert groups(scene, "tag", tag="b") == {"a": (1, 0, None), "b": (1, 0, None)}
    assert groups(scene, "tag", untagged="true") == {"": (2, 0, None)}
    assert scene.site.admin.get(f"{scene.runs}/groups", params={"group": "loss"}).status_code == 422


def test_the_group_with_the_newest_run_is_first_and_datasets_have_their_names(
    scene: Scene, runs: dict[str, str]
) -> None:
    items = scene.site.admin.get(f"{scene.runs}/groups", params={"group": "model"}).json()["items"]
    assert items[0]["key"] == "3x128"
    assert items[0]["newest"] == scene.show(runs["live"])["created"]
    [dataset] = scene.site.admin.get(f"{scene.runs}/groups", params={"group": "dataset"}).json()["items"]
    name = scene.site.admin.get(f"{scene.site.path}/datasets/{scene.dataset}").json()["name"]
    assert (dataset["key"], dataset["name"]) == (scene.dataset, name)


def test_exported_files_have_every_matching_run_in_order(
    scene: Scene, runs: dict[str, str], tmp_path: Path
) -> None:
    asked = {"sort": "name", "order": "asc"}
    with scene.database.write() as session:
        session.execute(update(Dataset).values(name="=letters"))
    response = scene.site.admin.get(f"{scene.runs}/export", params={"format": "parquet"} | asked)
    assert response.headers["content-disposition"] == 'attachment; filename="runs.parquet"'
    table = pq.read_table(io.BytesIO(response.content)).to_pylist()
    assert [row["name"] for row in table] == ["best", "live", "plain", "tagged"]
    live = table[1]
    shown = scene.show(runs["live"])
    assert (live["id"], live["state"], live["loss"], live["step"]) == (runs["live"], "running", 0.25, 4)
    assert live["learning_rate"] == shown["spec"]["optimizer"]["learning_rate"]
    assert (live["layers"], live["width"], live["tags"]) == (3, 128, ["a"])
    assert live["created"].isoformat() == shown["created"].replace("Z", "+00:00")
    assert live["ended"] is None and table[0]["ended"] is not None
    text = scene.site.admin.get(f"{scene.runs}/export", params={"format": "csv"} | asked)
    assert text.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(text.text, newline="")))
    assert [row["name"] for row in rows] == ["best", "live", "plain", "tagged"]
    assert rows[0]["dataset"] == "'=letters", "no formula"
    assert live["dataset"] == "=letters"
    assert rows[3]["tags"] == "a b" and rows[0]["loss"] == ""
    few = scene.site.admin.get(f"{scene.runs}/export", params={"tag": "a", "state": "cancelled"})
    assert [row["name"] for row in pq.read_table(io.BytesIO(few.content)).to_pylist()] == ["tagged"]
    none = scene.site.admin.get(f"{scene.runs}/export", params={"q": "nothing"})
    assert pq.read_table(io.BytesIO(none.content)).num_rows == 0


def test_files_are_written_in_blocks(
    scene: Scene, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 2, 4):
        monkeypatch.setattr(table_export, "BLOCK_RUNS", size)
        for sort in ("created", "loss"):
            response = scene.site.admin.get(f"{scene.runs}/export", params={"sort": sort, "order": "asc"})
            table = pq.read_table(io.BytesIO(response.content))
            assert sorted(table["name"].to_pylist()) == ["best", "live", "plain", "tagged"]
    monkeypatch.setattr(table_export, "MAX_EXPORTED", 3)
    refused = scene.site.admin.get(f"{scene.runs}/export")
    assert (refused.status_code, refused.json()["code"]) == (422, "too_many_runs")


VIEW = {
    "q": "night",
    "state": ["failed"],
    "tag": ["a"],
    "mine": True,
    "sort": "loss",
    "order": "asc",
    "columns": ["loss", "time"],
    "group": "dataset",
}


def test_a_view_belongs_to_one_person(scene: Scene) -> None:
    views = f"{scene.site.path}/views"
    saved = scene.site.admin.post(views, json={"name": "mine", "view": VIEW})
    assert saved.status_code == 201 and saved.json()["view"] == VIEW
    other = scene.site.member("viewer")
    assert other.get(views).json() == {"items": [], "next_cursor": None}
    assert other.delete(f"{views}/{saved.json()['id']}").status_code == 404
    theirs = other.post(views, json={"name": "mine", "view": {"q": "x"}}).json()
    again = scene.site.admin.post(views, json={"name": "mine", "view": {**VIEW, "group": None}}).json()
    assert again["id"] == saved.json()["id"], "a view of the same name is replaced"
    [left] = scene.site.admin.get(views).json()["items"]
    assert left["view"]["group"] is None
    assert scene.site.admin.delete(f"{views}/{left['id']}").status_code == 204
    assert scene.site.admin.get(views).json()["items"] == []
    assert [view["id"] for view in other.get(views).json()["items"]] == [theirs["id"]]


@pytest.mark.parametrize(
    "change",
    [
        {"group": "loss"},
        {"columns": ["<b>"]},
        {"columns": ["a"] * 101},
        {"state": ["odd"]},
        {"x": 1},
        {"q": "a" * 201},
    ],
)
def test_a_view_contains_only_what_a_list_can_show(scene: Scene, change: dict[str, Any]) -> None:
    refused = scene.site.admin.post(
        f"{scene.site.path}/views", json={"name": "mine", "view": {**VIEW, **change}}
    )
    assert refused.status_code == 422


def test_the_views_of_a_person_are_limited(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 2)
    views = f"{scene.site.path}/views"
    responses = [
        scene.site.admin.post(views, json={"name": name, "view": {}}) for name in ("a", "b", "c", "b")
    ]
    assert [response.status_code for response in responses] == [201, 201, 409, 201]
    assert responses[2].json()["code"] == "too_many_views"
    assert [view["name"] for view in scene.site.admin.get(views).json()["items"]] == ["a", "b"]


def test_the_sdk_and_the_command_line_support_groups_and_views(
    scene: Scene, served: Served, runs: dict[str, str], tmp_path: Path
) -> None:
    key = scene.site.member("viewer").headers["Authorization"].removeprefix("Bearer ")
    with Client(served.url, key) as client:
        team = client.team("acme")
        from trainwright.contracts.api.runs import RunGrouping, RunView

        assert {group.key: group.runs for group in team.run_groups(RunGrouping.TAG)} == {
            "a": 2,
            "b": 1,
            "": 2,
        }
        kept = team.save_view("tagged", RunView(tag=("a",), group=RunGrouping.MODEL))
        assert team.views() == [kept]
        file = team.export_runs(tmp_path / "runs.parquet", tag=["a"])
        assert pq.read_table(file).num_rows == 2
    listed = served.command(key, "runs list --view tagged")
    assert listed.stdout.split()[:5] == ["model", "runs", "unfinished", "best", "loss"]
    assert listed.stdout.count("3x128") == 1
    assert " tag a created desc model" in " ".join(served.command(key, "runs views").stdout.split())
    flat = served.command(key, "runs list --tag a --search live")
    assert runs["live"] in flat.stdout and runs["tagged"] not in flat.stdout
    unknown = served.command(key, "runs list --view none")
    assert unknown.exit_code == 1 and "no view 'none'" in unknown.stderr
    target = tmp_path / "runs.csv"
    assert served.command(key, f"runs export {target} --state running").exit_code == 0
    assert [row["name"] for row in csv.DictReader(target.open(newline=""))] == ["live"]
    assert served.command(key, f"runs export {tmp_path / 'runs.txt'}").exit_code == 2
    with Client(served.url, key) as client:
        client.team("acme").delete_view(kept.id)
        assert client.team("acme").views() == []
