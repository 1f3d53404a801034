"""Versions of files, of another version's files, or of mixtures. They never change, and list their differences."""

from typing import Any

import pytest
from sqlalchemy import event

from tests.backend.conftest import send_file
from tests.backend.datasets.dataset_editor import DatasetEditor, Json, letters, lines
from trainwright_backend.control.queued_deletions import delete_queued_bytes
from trainwright_backend.datasets.tables import DatasetVersion, ParsedFile, Preparation
from trainwright_backend.uploads.tables import StoredFile, Upload

GOOD = lines("a document", "another document", "a third one")


def states(dataset: Json) -> list[tuple[int, str]]:
    return [(version["number"], version["state"]) for version in dataset["versions"]]


def test_complete_uploads_become_a_dataset_that_is_read_and_prepared(editor: DatasetEditor) -> None:
    made = editor.make("My letters", ready=False, **{"a.jsonl": letters(), "folder/b.txt": b"some prose\n"})
    assert made["name"] == "My letters" and made["created_by"] == "Ada" and made["id"].startswith("ds_")
    assert states(made) == [(1, "waiting")]
    assert [item["state"] for item in made["versions"][0]["preparations"]] == ["waiting"]
    (version,) = editor.ready(made)["versions"]
    assert version["state"] == "ready" and version["read_bytes"] == version["bytes"]
    assert [(file["name"], file["format"], file["documents"]) for file in version["files"]] == [
        ("a.jsonl", "jsonl", 200),
        ("folder/b.txt", "text", 1),
    ]
    statistics = version["statistics"]
    assert (statistics["documents"], statistics["kept"], statistics["rejected"]) == (201, 201, 0)
    assert sum(item["documents"] for item in statistics["lengths"]) == 201
    assert [item["state"] for item in version["preparations"]] == ["ready"]
    assert editor.count(Upload) == 0, "the uploads now belong to the dataset"


@pytest.mark.both_databases
def test_a_repeated_request_with_the_same_key_creates_nothing(editor: DatasetEditor) -> None:
    """Its response may have been lost, and its uploads are used up."""

    new = {"name": "letters", "uploads": [editor.send("a.jsonl", letters())]}
    made, again = (editor.post("datasets", new, key="first") for _ in range(2))
    assert (made.status_code, again.json()) == (201, made.json())
    assert len(editor.get("datasets")["items"]) == 1

    path = f"datasets/{made.json()['id']}/versions"
    added = {"uploads": [editor.send("b.jsonl", letters(3))]}
    for _ in range(2):
        assert [
            version["number"] for version in editor.post(path, added, key="second").json()["versions"]
        ] == [2, 1]
    other = editor.post(path, {**added, "keep_files": True}, key="second")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")

    editor.ready(made.json())
    assert editor.delete(f"datasets/{made.json()['id']}").status_code == 204
    late = editor.post("datasets", new, key="first")
    assert (late.status_code, late.json()["code"]) == (410, "dataset_deleted")


def test_datasets_of_the_same_files_are_named(editor: DatasetEditor) -> None:
    """Whatever the files are called, and however they are curated; not if only some of them are the same."""
    one = editor.make("one", **{"a.jsonl": lines("a"), "b.jsonl": lines("b")})
    editor.make("part", **{"a.jsonl": lines("a")})
    editor.make("more", **{"a.jsonl": lines("a"), "b.jsonl": lines("b"), "c.jsonl": lines("c")})
    renamed = {"y.jsonl": lines("b"), "x.jsonl": lines("a")}
    same = editor.make("same", {"drop_duplicates": True}, **renamed)
    assert one["same_files_as"] == []
    assert same["same_files_as"] == [{"dataset": one["id"], "name": "one", "version": 1}]
    assert editor.show(one)["same_files_as"] == [{"dataset": same["id"], "name": "same", "version": 1}]
    assert [item["same_files_as"] for item in editor.get("datasets")["items"]] == [[]] * 4
    mixture = editor.make("mixture", {"mix": [{"dataset": made["id"], "weight": 1} for made in (one, same)]})
    assert mixture["same_files_as"] == []
    changed = editor.add(same, uploads=[editor.send("z.jsonl", lines("z"))])
    assert changed["same_files_as"] == editor.show(one)["same_files_as"] == [], "only newest versions count"


def test_the_files_of_another_team_are_not_mentioned(editor: DatasetEditor) -> None:
    editor.make("secret", **{"a.jsonl": lines("a")})
    owner = editor.site.other_team("others")
    upload = send_file(owner, "/api/v1/teams/others", "a.jsonl", lines("a"))
    made = owner.post("/api/v1/teams/others/datasets", json={"name": "own", "uploads": [upload]})
    assert made.status_code == 201 and made.json()["same_files_as"] == []


def test_a_version_with_only_another_curation_parses_no_file_again(editor: DatasetEditor) -> None:
    first = editor.make(**{"a.jsonl": lines("twice", "twice", "once")})
    second = editor.add(first, curation={"drop_duplicates": True})
    assert states(second) == [(2, "ready"), (1, "ready")]
    assert second["versions"][0]["changes"] == ["curation.drop_duplicates: false → true"]
    assert (editor.texts(second, 1), editor.texts(second, 2)) == (
        ["twice", "twice", "once"],
        ["twice", "once"],
    )
    assert second["versions"][1] == first["versions"][0], "a version never changes"
    assert editor.count(ParsedFile) == 1


def test_uploads_replace_the_files_or_are_added(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": lines("a"), "b.jsonl": lines("b")})
    joined = editor.add(made, uploads=[editor.send("c.jsonl", lines("c"))], keep_files=True)
    assert editor.texts(joined, 2) == ["a", "b", "c"]
    replaced = editor.add(joined, uploads=[editor.send("b.jsonl", lines("B"))])
    assert editor.texts(replaced, 3) == ["B"]
    older = editor.add(replaced, base=1)
    assert editor.texts(older, 4) == ["a", "b"]
    changes = [
        [sentence.partition(" (")[0] for sentence in version["changes"]] for version in older["versions"]
    ]
    assert changes == [
        ["Added a.jsonl", "Replaced b.jsonl"],
        ["Replaced b.jsonl", "Removed a.jsonl", "Removed c.jsonl"],
        ["Added c.jsonl"],
        [],
    ]


def test_each_field_of_the_curation_that_differs_is_named(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": GOOD})
    curation = {"rejected_limit": 0.5, "rules": {"min_characters": 2, "max_repeated_line_fraction": 0.3}}
    assert editor.add(made, curation=curation)["versions"][0]["changes"] == [
        "curation.rejected_limit: 0.01 → 0.5",
        "curation.rules.min_characters: empty → 2",
        "curation.rules.max_repeated_line_fraction: empty → 0.3",
    ]


@pytest.mark.parametrize(
    ("new", "field", "message"),
    [
        ({"uploads": []}, "uploads", "There are no files"),
        ({"uploads": ["up_nonsense"]}, "uploads", "There is no upload 'up_nonsense'"),
        ({"uploads": ["{a}", "{a}"]}, "uploads", "named twice"),
        ({"uploads": ["{a}", "{again}"]}, "uploads", "two files named"),
        ({"name": "<b>"}, "name", "letters, digits"),
        (
            {"curation": {"drop_duplicate": True}},
            "curation.drop_duplicate",
            "Did you mean 'drop_duplicates'?",
        ),
        (
            {"curation": {"rules": {"min_characters": 9, "max_characters": 3}}},
            "curation.rules.min_characters",
            "larger",
        ),
        (
            {"curation": {"mix": [{"dataset": "{ready}", "weight": 1}]}},
            "curation.mix",
            "A mixture has no files",
        ),
        (
            {"uploads": [], "curation": {"mix": [{"dataset": "ds_x", "weight": 1}]}},
            "curation.mix.0.dataset",
            "no dataset",
        ),
        (
            {"uploads": [], "curation": {"mix": [{"dataset": "{waiting}", "weight": 1}]}},
            "curation.mix.0.dataset",
            "No version of this dataset can be mixed",
        ),
        (
            {"uploads": [], "curation": {"mix": [{"dataset": "{waiting}", "version": 1, "weight": 1}]}},
            "curation.mix.0.version",
            "Only versions that are ready",
        ),
        (
            {"uploads": [], "curation": {"mix": [{"dataset": "{ready}", "version": 7, "weight": 1}]}},
            "curation.mix.0.version",
            "only version 1",
        ),
        (
            {
                "uploads": [],
                "curation": {
                    "mix": [
                        {"dataset": "{ready}", "weight": 1},
                        {"dataset": "{ready}", "version": 1, "weight": 1},
                    ]
                },
            },
            "curation.mix.1.dataset",
            "named twice",
        ),
    ],
)
def test_an_invalid_version_is_refused_by_field_and_not_created(
    editor: DatasetEditor, new: Json, field: str, message: str
) -> None:
    names = {
        "{ready}": editor.make("ready", **{"a.jsonl": GOOD})["id"],
        "{waiting}": editor.make("waiting", ready=False, **{"a.jsonl": letters()})["id"],
        "{a}": editor.send("a.jsonl", GOOD),
        "{again}": editor.send("a.jsonl", lines("other")),
    }
    asked = filled({"name": "new", "uploads": ["{a}"]} | new, names)
    found_field, found = editor.problem(editor.post("datasets", asked))
    assert found_field == field and message in found
    assert len(editor.get("datasets")["items"]) == 2
    assert editor.count(Upload) == 2, "refused uploads can be used again"


def filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def test_a_base_that_does_not_exist_is_named(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": GOOD})
    response = editor.post(f"datasets/{made['id']}/versions", {"base": 3})
    assert editor.problem(response) == ("base", "This dataset has only version 1.")


def test_the_same_files_are_stored_and_parsed_once(editor: DatasetEditor) -> None:
    first = editor.make("first", **{"a.jsonl": letters()})
    second = editor.make("second", **{"b.jsonl": letters(), "c.txt": b"prose"})
    assert editor.texts(first)[0] == editor.texts(second)[0]
    assert editor.count(StoredFile) == 2 and editor.count(ParsedFile) == 2
    third = editor.make("third", **{"letters.txt": letters()})
    assert editor.count(StoredFile) == 2
    assert third["versions"][0]["files"][0]["format"] == "jsonl"


def test_shared_files_are_deleted_with_their_last_user(editor: DatasetEditor) -> None:
    first = editor.make("first", **{"a.jsonl": letters()})
    second = editor.make("second", **{"b.jsonl": letters()})
    assert editor.delete(f"datasets/{first['id']}").status_code == 204
    sweep(editor)
    assert len(editor.texts(second)) == 100 and editor.count(ParsedFile) == 1
    again = editor.add(second, curation={"drop_duplicates": True})
    assert states(again)[0] == (2, "ready")
    assert editor.delete(f"datasets/{second['id']}").status_code == 204
    sweep(editor)
    assert editor.stored() == [] and editor.count(ParsedFile) == editor.count(StoredFile) == 0


def sweep(editor: DatasetEditor) -> None:
    delete_queued_bytes(editor.site.app.state.database, editor.site.app.state.store)


def test_deleting_a_version_does_not_affect_the_others(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": letters()})
    editor.add(made, uploads=[editor.send("b.jsonl", lines("b", "c"))])
    path = f"datasets/{made['id']}/versions"
    assert editor.delete(f"{path}/7").status_code == 404
    assert editor.delete(f"{path}/1").status_code == 204
    sweep(editor)
    left = editor.show(made)
    assert states(left) == [(2, "ready")] and editor.texts(left, 2) == ["b", "c"]
    assert editor.count(StoredFile) == 1
    last = editor.delete(f"{path}/2")
    assert (last.status_code, last.json()["code"]) == (409, "last_version")
    response = editor.post("runs", {"name": "x", "data": {"dataset": made["id"], "version": 1}})
    assert editor.problem(response) == ("data.version", "This dataset has these versions: 2.")


def test_data_in_use_by_a_run_cannot_be_deleted_and_the_error_names_the_run(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": letters()})
    editor.add(made, curation={"drop_duplicates": True})
    spec = {"name": "my run", "data": {"dataset": made["id"], "version": 1}, "resources": {"device": "cpu"}}
    run = editor.post("runs", spec)
    assert run.status_code == 201
    for path, code in (
        (f"datasets/{made['id']}", "dataset_in_use"),
        (f"datasets/{made['id']}/versions/1", "version_in_use"),
    ):
        response = editor.delete(path)
        assert (response.status_code, response.json()["code"]) == (409, code)
        assert "Runs that have not ended" in response.json()["detail"]
        assert "my run" in response.json()["detail"] and response.json()["runs"] == ["my run"]
    assert editor.delete(f"datasets/{made['id']}/versions/2").status_code == 204
    assert editor.post(f"runs/{run.json()['id']}/cancel", {}).status_code == 202
    assert editor.delete(f"datasets/{made['id']}").status_code == 204
    shown = editor.get(f"runs/{run.json()['id']}")
    assert (shown["state"], shown["spec"]["data"]["dataset"]) == ("cancelled", made["id"])


def test_the_number_of_a_deleted_version_is_not_reused(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": letters()})
    editor.add(made, curation={"drop_duplicates": True})
    assert editor.delete(f"datasets/{made['id']}/versions/2").status_code == 204
    assert states(editor.add(made, curation={"rejected_limit": 0.5})) == [(3, "ready"), (1, "ready")]


def test_a_list_loads_no_manifest_and_no_older_version(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": letters()})
    whole = editor.add(made, curation={"drop_duplicates": True})
    loaded: list[object] = []

    def remember(row: object, context: object) -> None:
        loaded.append(row)
        assert "manifest" not in vars(row)

    for table in (DatasetVersion, Preparation):
        event.listen(table, "load", remember)
    try:
        (listed,) = editor.get("datasets")["items"]
    finally:
        for table in (DatasetVersion, Preparation):
            event.remove(table, "load", remember)
    assert listed["versions"] == whole["versions"][:1]
    assert listed["versions"][0]["preparations"][0]["train_tokens"] > 0
    assert len(loaded) == 2, "one version and its preparation"


def test_a_mixture_takes_characters_by_weight_and_repeats_nothing(editor: DatasetEditor) -> None:
    small = editor.make("small", **{"s.jsonl": lines(*(f"small {n:04d}" for n in range(400)))})
    large = editor.make("large", **{"l.jsonl": lines(*(f"large {n:04d}" for n in range(2000)))})
    mix = [{"dataset": small["id"], "weight": 1}, {"dataset": large["id"], "weight": 3}]
    mixed = editor.make("mixed", {"mix": mix})
    (version,) = mixed["versions"]
    assert (
        version["state"] == "ready"
        and version["files"] == []
        and version["curation"]["mix"][0]["version"] == 1
    )
    shares = {share["dataset"]: share["share"] for share in version["statistics"]["mix"]}
    assert shares[small["id"]] == pytest.approx(0.25, abs=0.02)
    assert shares[large["id"]] == pytest.approx(0.75, abs=0.02)
    statistics = version["statistics"]
    assert statistics["documents"] == 2400 and 1400 < statistics["kept"] < 1800
    assert statistics["dropped"]["mixture"] == 2400 - statistics["kept"]
    page = editor.documents(mixed)
    assert {item["file"] for item in page} == {"small/s.jsonl"} and all(item["kept"] for item in page)
    assert [item["state"] for item in version["preparations"]] == ["ready"]
    assert version["preparations"][0]["documents"] == statistics["kept"]


def test_a_mixture_names_its_datasets_and_stores_their_ids(editor: DatasetEditor) -> None:
    made = [editor.make(name, **{"a.jsonl": letters()}) for name in ("one", "other")]
    mix = [{"dataset": name, "weight": 1} for name in ("one", "other")]
    assert editor.post("datasets/count", {"curation": {"mix": mix}}).status_code == 200
    mixed = editor.make("mixed", {"mix": mix})
    for shown in (mixed, editor.add(mixed, curation={"mix": mix})):
        stored = shown["versions"][0]["curation"]["mix"]
        assert [source["dataset"] for source in stored] == [item["id"] for item in made]
    counted = editor.post("datasets/count", {"dataset": "one", "curation": {}})
    assert counted.json()["documents"] == made[0]["versions"][0]["statistics"]["documents"]
    editor.make("other", ready=False, **{"b.jsonl": GOOD})
    field, message = editor.problem(editor.post("datasets/count", {"curation": {"mix": mix}}))
    assert field == "curation.mix.1.dataset" and made[1]["id"] in message
    twice = {"mix": [mix[0], {"dataset": made[0]["id"], "weight": 1}]}
    response = editor.post("datasets", {"name": "twice", "curation": twice})
    assert editor.problem(response)[0] == "curation.mix.1.dataset"


def test_each_source_of_a_mixture_keeps_its_own_curation(editor: DatasetEditor) -> None:
    twice = lines(*(f"document {n // 2:04d}" for n in range(400)))
    one = editor.make("one", {"drop_duplicates": True}, **{"a.jsonl": twice})
    other = editor.make("other", **{"b.jsonl": lines(*(f"something {n:04d}" for n in range(200)))})
    mixed = editor.make("mixed", {"mix": [{"dataset": item["id"], "weight": 1} for item in (one, other)]})
    kept = [document for document in editor.documents(mixed) if document["kept"]]
    texts = [document["text"] for document in kept]
    assert len(texts) == len(set(texts))
    assert {document["dropped_by"] for document in editor.documents(mixed)} >= {None, "duplicate"}


def test_a_mixed_version_cannot_be_deleted_and_the_error_names_the_mixture(editor: DatasetEditor) -> None:
    source = editor.make("source", **{"a.jsonl": letters()})
    mixed = editor.make("mixed", {"mix": [{"dataset": source["id"], "weight": 1}]})
    response = editor.delete(f"datasets/{source['id']}")
    assert (response.status_code, response.json()["mixtures"]) == (409, ["mixed, version 1"])
    nested = {"name": "nested", "curation": {"mix": [{"dataset": mixed["id"], "version": 1, "weight": 1}]}}
    assert "itself a mixture" in editor.problem(editor.post("datasets", nested))[1]
    itself = {"curation": {"mix": [{"dataset": source["id"], "weight": 1}]}}
    assert "into itself" in editor.problem(editor.post(f"datasets/{source['id']}/versions", itself))[1]
    assert editor.delete(f"datasets/{mixed['id']}").status_code == 204
    assert editor.delete(f"datasets/{source['id']}").status_code == 204


def test_another_team_s_dataset_cannot_be_mixed(editor: DatasetEditor) -> None:
    theirs = editor.site.other_team("globex")
    source = editor.make("source", **{"a.jsonl": letters()})
    asked = {"name": "thief", "curation": {"mix": [{"dataset": source["id"], "weight": 1}]}}
    response = theirs.post("/api/v1/teams/globex/datasets", json=asked)
    assert editor.problem(response)[0] == "curation.mix.0.dataset"


def test_lists_are_paged_newest_first(editor: DatasetEditor) -> None:
    for number in range(5):
        editor.make(f"set {number}", ready=False, **{"a.jsonl": GOOD})
    names, cursor = [], None
    while True:
        page = editor.get("datasets", limit=2, **({"cursor": cursor} if cursor else {}))
        names += [dataset["name"] for dataset in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == [f"set {number}" for number in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("web", ["Web pages", "old web"]),
        ("pages WEB", ["Web pages"]),
        ("-50", ["books-50"]),
        ("%", []),
        ("web books", []),
        ("", ["books-50", "Web pages", "old web"]),
    ],
)
def test_datasets_are_found_by_words_of_their_names_in_any_case(
    editor: DatasetEditor, words: str, found: list[str]
) -> None:
    for name in ("old web", "Web pages", "books-50"):
        editor.make(name, ready=False, **{"a.jsonl": GOOD})
    assert [dataset["name"] for dataset in editor.get("datasets", q=words)["items"]] == found


@pytest.mark.parametrize(
    ("bad", "state"), [(2, "ready"), (3, "failed")], ids=["at the limit", "above the limit"]
)
def test_a_version_fails_only_above_its_limit_of_rejected_rows(
    editor: DatasetEditor, bad: int, state: str
) -> None:
    content = letters(200 - bad) + b"broken\n" * bad
    made = editor.make(**{"a.jsonl": content})
    (version,) = made["versions"]
    assert version["state"] == state and len(editor.rejected(made)) == bad
    if state == "failed":
        assert version["error"] == (
            "3 of 200 documents (1.5 %) could not be read, more than the limit of 1 %. First: line 198 of a.jsonl is not "
            "a JSON object; line 199 of a.jsonl is not a JSON object; line 200 of a.jsonl is not a JSON object. Fix the "
            "files, or create a version with a higher “Maximum unreadable documents” (`curation.rejected_limit` in the API)."
        )
        assert [item["state"] for item in version["preparations"]] == ["failed"]
        response = editor.post("runs", {"name": "x", "data": {"dataset": made["id"]}})
        assert editor.problem(response)[0] == "data.version"
        assert states(editor.add(made, curation={"rejected_limit": 0.02})) == [(2, "ready"), (1, "failed")]


@pytest.mark.parametrize(
    ("files", "curation", "sentence"),
    [
        ({"a.jsonl": b"bad\nworse\n"}, {}, "No usable document was found: all 2 rows were rejected."),
        ({"a.jsonl": lines("one") + b"bad\n" * 400}, {}, "400 of 401 documents (99.8 %) could not be read"),
        ({"a.txt": b" \n \n"}, {}, "No usable document was found"),
        (
            {"a.jsonl": GOOD},
            {"rules": {"min_characters": 1000}},
            "The curation keeps none of the 3 documents",
        ),
    ],
)
def test_a_version_without_documents_fails_with_its_reason(
    editor: DatasetEditor, files: dict[str, bytes], curation: Json, sentence: str
) -> None:
    (version,) = editor.make("empty", curation, **files)["versions"]
    assert version["state"] == "failed" and sentence in version["error"]
    (preparation,) = version["preparations"]
    assert preparation["state"] == "failed" and sentence in preparation["error"]


def test_a_field_that_no_column_can_have_is_refused(editor: DatasetEditor) -> None:
    asked = {
        "name": "x",
        "uploads": [editor.send("a.jsonl", GOOD)],
        "curation": {"read": {"field": "te\u0000xt"}},
    }
    assert editor.problem(editor.post("datasets", asked))[0] == "curation.read.field"


@pytest.mark.both_databases
def test_text_that_databases_cannot_store_does_not_stop_the_parsing(editor: DatasetEditor) -> None:
    """Reasons and errors quote names from the files."""
    rows = b'{"te\\u0000xt": 1, "body": 2}\n' * 3
    made = editor.make("nul", {"rejected_limit": 1.0}, **{"a.jsonl": rows})
    (version,) = made["versions"]
    assert version["state"] == "failed" and "a.jsonl" in version["error"]
    asked = {"read": {"field": "n" * 200}, "rejected_limit": 1.0}
    long = editor.make(
        "long", asked, **{"a.jsonl": lines({"n" * 200: 7}, {"n" * 200: "fine"}, {"n" * 200: [1]})}
    )
    assert long["versions"][0]["state"] == "ready" and len(editor.rejected(long)) == 2
