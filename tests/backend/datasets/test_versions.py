"""Versions: made of files, of other versions' files, or of mixtures; they never change, and say what differs."""

from typing import Any

import pytest
from sqlalchemy import event

from tests.backend.datasets.desk import Desk, Json, letters, lines
from trainwright_backend.control import sweep_bytes
from trainwright_backend.datasets.tables import DatasetVersion, Preparation, Reading
from trainwright_backend.uploads.tables import StoredFile, Upload

GOOD = lines("a document", "another document", "a third one")


def states(dataset: Json) -> list[tuple[int, str]]:
    return [(version["number"], version["state"]) for version in dataset["versions"]]


def test_complete_uploads_become_a_dataset_that_is_read_and_prepared(desk: Desk) -> None:
    made = desk.make("My letters", ready=False, **{"a.jsonl": letters(), "folder/b.txt": b"some prose\n"})
    assert made["name"] == "My letters" and made["created_by"] == "Ada" and made["id"].startswith("ds_")
    assert states(made) == [(1, "waiting")]
    assert [item["state"] for item in made["versions"][0]["preparations"]] == ["waiting"]
    (version,) = desk.ready(made)["versions"]
    assert version["state"] == "ready" and version["read_bytes"] == version["bytes"]
    assert [(file["name"], file["format"], file["documents"]) for file in version["files"]] == [
        ("a.jsonl", "jsonl", 200),
        ("folder/b.txt", "text", 1),
    ]
    statistics = version["statistics"]
    assert (statistics["documents"], statistics["kept"], statistics["rejected"]) == (201, 201, 0)
    assert sum(item["documents"] for item in statistics["lengths"]) == 201
    assert [item["state"] for item in version["preparations"]] == ["ready"]
    assert desk.count(Upload) == 0, "the dataset took the uploads"


def test_a_version_of_only_another_recipe_reads_no_file_again(desk: Desk) -> None:
    first = desk.make(**{"a.jsonl": lines("twice", "twice", "once")})
    second = desk.add(first, recipe={"drop_duplicates": True})
    assert states(second) == [(2, "ready"), (1, "ready")]
    assert second["versions"][0]["changes"] == ["recipe.drop_duplicates: false → true"]
    assert (desk.texts(second, 1), desk.texts(second, 2)) == (["twice", "twice", "once"], ["twice", "once"])
    assert second["versions"][1] == first["versions"][0], "a version never changes"
    assert desk.count(Reading) == 1


def test_uploads_replace_the_files_or_join_them(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": lines("a"), "b.jsonl": lines("b")})
    joined = desk.add(made, uploads=[desk.send("c.jsonl", lines("c"))], keep_files=True)
    assert desk.texts(joined, 2) == ["a", "b", "c"]
    replaced = desk.add(joined, uploads=[desk.send("b.jsonl", lines("B"))])
    assert desk.texts(replaced, 3) == ["B"]
    older = desk.add(replaced, base=1)
    assert desk.texts(older, 4) == ["a", "b"]
    changes = [[sentence.partition(" (")[0] for sentence in one["changes"]] for one in older["versions"]]
    assert changes == [
        ["Added a.jsonl", "Replaced b.jsonl"],
        ["Replaced b.jsonl", "Removed a.jsonl", "Removed c.jsonl"],
        ["Added c.jsonl"],
        [],
    ]


def test_each_field_of_the_recipe_that_differs_is_named(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": GOOD})
    recipe = {"rejected_limit": 0.5, "rules": {"min_characters": 2, "max_repeated_line_fraction": 0.3}}
    assert desk.add(made, recipe=recipe)["versions"][0]["changes"] == [
        "recipe.rejected_limit: 0.01 → 0.5",
        "recipe.rules.min_characters: empty → 2",
        "recipe.rules.max_repeated_line_fraction: empty → 0.3",
    ]


@pytest.mark.parametrize(
    ("new", "field", "message"),
    [
        ({"uploads": []}, "uploads", "There are no files"),
        ({"uploads": ["up_nonsense"]}, "uploads", "There is no upload 'up_nonsense'"),
        ({"uploads": ["{a}", "{a}"]}, "uploads", "named twice"),
        ({"uploads": ["{a}", "{again}"]}, "uploads", "Two files have this name"),
        ({"name": "<b>"}, "name", "letters, digits"),
        ({"recipe": {"drop_duplicate": True}}, "recipe.drop_duplicate", "Did you mean 'drop_duplicates'?"),
        (
            {"recipe": {"rules": {"min_characters": 9, "max_characters": 3}}},
            "recipe.rules.min_characters",
            "larger",
        ),
        ({"recipe": {"mix": [{"dataset": "{ready}", "weight": 1}]}}, "recipe.mix", "no files of its own"),
        (
            {"uploads": [], "recipe": {"mix": [{"dataset": "ds_x", "weight": 1}]}},
            "recipe.mix.0.dataset",
            "no dataset",
        ),
        (
            {"uploads": [], "recipe": {"mix": [{"dataset": "{waiting}", "weight": 1}]}},
            "recipe.mix.0.dataset",
            "No version of this dataset can be mixed",
        ),
        (
            {"uploads": [], "recipe": {"mix": [{"dataset": "{waiting}", "version": 1, "weight": 1}]}},
            "recipe.mix.0.version",
            "Only versions that are ready",
        ),
        (
            {"uploads": [], "recipe": {"mix": [{"dataset": "{ready}", "version": 7, "weight": 1}]}},
            "recipe.mix.0.version",
            "only version 1",
        ),
        (
            {
                "uploads": [],
                "recipe": {
                    "mix": [
                        {"dataset": "{ready}", "weight": 1},
                        {"dataset": "{ready}", "version": 1, "weight": 1},
                    ]
                },
            },
            "recipe.mix.1.dataset",
            "named twice",
        ),
    ],
)
def test_what_is_wrong_is_named_and_makes_nothing(desk: Desk, new: Json, field: str, message: str) -> None:
    names = {
        "{ready}": desk.make("ready", **{"a.jsonl": GOOD})["id"],
        "{waiting}": desk.make("waiting", ready=False, **{"a.jsonl": letters()})["id"],
        "{a}": desk.send("a.jsonl", GOOD),
        "{again}": desk.send("a.jsonl", lines("other")),
    }
    asked = filled({"name": "new", "uploads": ["{a}"]} | new, names)
    found_field, found = desk.problem(desk.post("datasets", asked))
    assert found_field == field and message in found
    assert len(desk.get("datasets")["items"]) == 2
    assert desk.count(Upload) == 2, "refused uploads can be named again"


def filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def test_a_base_that_does_not_exist_is_named(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": GOOD})
    answer = desk.post(f"datasets/{made['id']}/versions", {"base": 3})
    assert desk.problem(answer) == ("base", "This dataset has only version 1.")


def test_the_same_files_are_stored_and_read_once(desk: Desk) -> None:
    first = desk.make("first", **{"a.jsonl": letters()})
    second = desk.make("second", **{"b.jsonl": letters(), "c.txt": b"prose"})
    assert desk.texts(first)[0] == desk.texts(second)[0]
    assert desk.count(StoredFile) == 2 and desk.count(Reading) == 2
    third = desk.make("third", **{"letters.txt": letters()})
    assert desk.count(StoredFile) == 2
    assert third["versions"][0]["files"][0]["format"] == "jsonl"


def test_shared_bytes_go_with_their_last_user(desk: Desk) -> None:
    first = desk.make("first", **{"a.jsonl": letters()})
    second = desk.make("second", **{"b.jsonl": letters()})
    assert desk.delete(f"datasets/{first['id']}").status_code == 204
    swept(desk)
    assert len(desk.texts(second)) == 100 and desk.count(Reading) == 1
    again = desk.add(second, recipe={"drop_duplicates": True})
    assert states(again)[0] == (2, "ready")
    assert desk.delete(f"datasets/{second['id']}").status_code == 204
    swept(desk)
    assert desk.stored() == [] and desk.count(Reading) == desk.count(StoredFile) == 0


def swept(desk: Desk) -> None:
    sweep_bytes(desk.site.app.state.database, desk.site.app.state.store)


def test_deleting_a_version_leaves_the_others(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": letters()})
    desk.add(made, uploads=[desk.send("b.jsonl", lines("b", "c"))])
    path = f"datasets/{made['id']}/versions"
    assert desk.delete(f"{path}/7").status_code == 404
    assert desk.delete(f"{path}/1").status_code == 204
    swept(desk)
    left = desk.show(made)
    assert states(left) == [(2, "ready")] and desk.texts(left, 2) == ["b", "c"]
    assert desk.count(StoredFile) == 1
    last = desk.delete(f"{path}/2")
    assert (last.status_code, last.json()["code"]) == (409, "last_version")
    answer = desk.post("runs", {"name": "x", "data": {"dataset": made["id"], "version": 1}})
    assert desk.problem(answer) == ("data.version", "This dataset has these versions: 2.")


def test_what_a_run_uses_stays_until_the_run_has_ended_and_the_error_names_the_run(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": letters()})
    desk.add(made, recipe={"drop_duplicates": True})
    spec = {"name": "my run", "data": {"dataset": made["id"], "version": 1}, "resources": {"device": "cpu"}}
    run = desk.post("runs", spec)
    assert run.status_code == 201
    for path, code in (
        (f"datasets/{made['id']}", "dataset_in_use"),
        (f"datasets/{made['id']}/versions/1", "version_in_use"),
    ):
        answer = desk.delete(path)
        assert (answer.status_code, answer.json()["code"]) == (409, code)
        assert "Runs that have not ended" in answer.json()["detail"]
        assert "my run" in answer.json()["detail"] and answer.json()["runs"] == ["my run"]
    assert desk.delete(f"datasets/{made['id']}/versions/2").status_code == 204
    assert desk.post(f"runs/{run.json()['id']}/cancel", {}).status_code == 202
    assert desk.delete(f"datasets/{made['id']}").status_code == 204
    shown = desk.get(f"runs/{run.json()['id']}")
    assert (shown["state"], shown["spec"]["data"]["dataset"]) == ("cancelled", made["id"])


def test_the_number_of_a_deleted_version_is_not_given_again(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": letters()})
    desk.add(made, recipe={"drop_duplicates": True})
    assert desk.delete(f"datasets/{made['id']}/versions/2").status_code == 204
    assert states(desk.add(made, recipe={"rejected_limit": 0.5})) == [(3, "ready"), (1, "ready")]


def test_a_list_reads_no_manifest_and_no_older_version(desk: Desk) -> None:
    made = desk.make(**{"a.jsonl": letters()})
    whole = desk.add(made, recipe={"drop_duplicates": True})
    loaded: list[object] = []

    def remember(row: object, context: object) -> None:
        loaded.append(row)
        assert "manifest" not in vars(row)

    for table in (DatasetVersion, Preparation):
        event.listen(table, "load", remember)
    try:
        (listed,) = desk.get("datasets")["items"]
    finally:
        for table in (DatasetVersion, Preparation):
            event.remove(table, "load", remember)
    assert listed["versions"] == whole["versions"][:1]
    assert listed["versions"][0]["preparations"][0]["train_tokens"] > 0
    assert len(loaded) == 2, "one version and its preparation"


def test_a_mixture_takes_characters_by_weight_and_repeats_nothing(desk: Desk) -> None:
    small = desk.make("small", **{"s.jsonl": lines(*(f"small {n:04d}" for n in range(400)))})
    large = desk.make("large", **{"l.jsonl": lines(*(f"large {n:04d}" for n in range(2000)))})
    mix = [{"dataset": small["id"], "weight": 1}, {"dataset": large["id"], "weight": 3}]
    mixed = desk.make("mixed", {"mix": mix})
    (version,) = mixed["versions"]
    assert (
        version["state"] == "ready" and version["files"] == [] and version["recipe"]["mix"][0]["version"] == 1
    )
    shares = {share["dataset"]: share["share"] for share in version["statistics"]["mix"]}
    assert shares[small["id"]] == pytest.approx(0.25, abs=0.02)
    assert shares[large["id"]] == pytest.approx(0.75, abs=0.02)
    statistics = version["statistics"]
    assert statistics["documents"] == 2400 and 1400 < statistics["kept"] < 1800
    assert statistics["dropped"]["mixture"] == 2400 - statistics["kept"]
    page = desk.documents(mixed)
    assert {one["file"] for one in page} == {"small/s.jsonl"} and all(one["kept"] for one in page)
    assert [item["state"] for item in version["preparations"]] == ["ready"]
    assert version["preparations"][0]["documents"] == statistics["kept"]


def test_each_source_of_a_mixture_brings_its_own_recipe(desk: Desk) -> None:
    twice = lines(*(f"document {n // 2:04d}" for n in range(400)))
    one = desk.make("one", {"drop_duplicates": True}, **{"a.jsonl": twice})
    other = desk.make("other", **{"b.jsonl": lines(*(f"something {n:04d}" for n in range(200)))})
    mixed = desk.make("mixed", {"mix": [{"dataset": item["id"], "weight": 1} for item in (one, other)]})
    kept = [document for document in desk.documents(mixed) if document["kept"]]
    texts = [document["text"] for document in kept]
    assert len(texts) == len(set(texts))
    assert {document["dropped_by"] for document in desk.documents(mixed)} >= {None, "duplicate"}


def test_what_is_mixed_stays_and_the_error_names_the_mixture(desk: Desk) -> None:
    source = desk.make("source", **{"a.jsonl": letters()})
    mixed = desk.make("mixed", {"mix": [{"dataset": source["id"], "weight": 1}]})
    answer = desk.delete(f"datasets/{source['id']}")
    assert (answer.status_code, answer.json()["mixtures"]) == (409, ["mixed, version 1"])
    nested = {"name": "nested", "recipe": {"mix": [{"dataset": mixed["id"], "version": 1, "weight": 1}]}}
    assert "mixture itself" in desk.problem(desk.post("datasets", nested))[1]
    itself = {"recipe": {"mix": [{"dataset": source["id"], "weight": 1}]}}
    assert "into itself" in desk.problem(desk.post(f"datasets/{source['id']}/versions", itself))[1]
    assert desk.delete(f"datasets/{mixed['id']}").status_code == 204
    assert desk.delete(f"datasets/{source['id']}").status_code == 204


def test_another_team_s_dataset_cannot_be_mixed(desk: Desk) -> None:
    theirs = desk.site.other_team("globex")
    source = desk.make("source", **{"a.jsonl": letters()})
    asked = {"name": "thief", "recipe": {"mix": [{"dataset": source["id"], "weight": 1}]}}
    answer = theirs.post("/api/v1/teams/globex/datasets", json=asked)
    assert desk.problem(answer)[0] == "recipe.mix.0.dataset"


def test_lists_come_in_pages_newest_first(desk: Desk) -> None:
    for number in range(5):
        desk.make(f"set {number}", ready=False, **{"a.jsonl": GOOD})
    names, cursor = [], None
    while True:
        page = desk.get("datasets", limit=2, **({"cursor": cursor} if cursor else {}))
        names += [dataset["name"] for dataset in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == [f"set {number}" for number in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("bad", "state"), [(2, "ready"), (3, "failed")], ids=["at the limit", "above the limit"]
)
def test_a_version_fails_only_above_its_limit_of_rejected_rows(desk: Desk, bad: int, state: str) -> None:
    content = letters(200 - bad) + b"broken\n" * bad
    made = desk.make(**{"a.jsonl": content})
    (version,) = made["versions"]
    assert version["state"] == state and len(desk.rejected(made)) == bad
    if state == "failed":
        assert version["error"] == (
            "3 of 200 documents (1.5 %) could not be read, more than the limit of 1 %. First: line 198 of a.jsonl is not "
            "a JSON object; line 199 of a.jsonl is not a JSON object; line 200 of a.jsonl is not a JSON object. Mend the "
            "files, or make a version that allows more of them: “Unreadable documents, at most”, rejected_limit in a recipe."
        )
        assert [item["state"] for item in version["preparations"]] == ["failed"]
        answer = desk.post("runs", {"name": "x", "data": {"dataset": made["id"]}})
        assert desk.problem(answer)[0] == "data.version"
        assert states(desk.add(made, recipe={"rejected_limit": 0.02})) == [(2, "ready"), (1, "failed")]


@pytest.mark.parametrize(
    ("files", "recipe", "sentence"),
    [
        ({"a.jsonl": b"bad\nworse\n"}, {}, "No usable document was found: all 2 rows were rejected."),
        ({"a.jsonl": lines("one") + b"bad\n" * 400}, {}, "400 of 401 documents (99.8 %) could not be read"),
        ({"a.txt": b" \n \n"}, {}, "No usable document was found"),
        ({"a.jsonl": GOOD}, {"rules": {"min_characters": 1000}}, "The recipe keeps none of the 3 documents"),
    ],
)
def test_a_version_without_a_document_fails_with_a_sentence(
    desk: Desk, files: dict[str, bytes], recipe: Json, sentence: str
) -> None:
    (version,) = desk.make("empty", recipe, **files)["versions"]
    assert version["state"] == "failed" and sentence in version["error"]
    (preparation,) = version["preparations"]
    assert preparation["state"] == "failed" and sentence in preparation["error"]


def test_a_field_that_no_column_can_have_is_refused(desk: Desk) -> None:
    asked = {
        "name": "x",
        "uploads": [desk.send("a.jsonl", GOOD)],
        "recipe": {"read": {"field": "te\u0000xt"}},
    }
    assert desk.problem(desk.post("datasets", asked))[0] == "recipe.read.field"


def test_words_of_files_that_no_database_takes_do_not_stop_the_reading(desk: Desk) -> None:
    """Reasons and errors repeat names that stand in the files."""
    rows = b'{"te\\u0000xt": 1, "body": 2}\n' * 3
    made = desk.make("nul", {"rejected_limit": 1.0}, **{"a.jsonl": rows})
    (version,) = made["versions"]
    assert version["state"] == "failed" and "a.jsonl" in version["error"]
    asked = {"read": {"field": "n" * 200}, "rejected_limit": 1.0}
    long = desk.make(
        "long", asked, **{"a.jsonl": lines({"n" * 200: 7}, {"n" * 200: "fine"}, {"n" * 200: [1]})}
    )
    assert long["versions"][0]["state"] == "ready" and len(desk.rejected(long)) == 2
