"""Uploaded tokenizers and those of other datasets: choosing one for a submission, and deleting one."""

import json

import numpy as np
import pytest
from sqlalchemy import select

from tests.backend.datasets.dataset_editor import DatasetEditor, Json, letters
from trainwright.contracts.token_shards import ShardManifest
from trainwright.prepare.tokenizer import byte_tokenizer, tokenizer_bytes, train_bpe
from trainwright_backend.control.queued_deletions import delete_queued_bytes
from trainwright_backend.datasets.tables import Preparation
from trainwright_backend.uploads.tables import StoredFile, Upload

BYTES = tokenizer_bytes(byte_tokenizer())
TRAINED = tokenizer_bytes(train_bpe(iter(["the quick brown fox jumps over the lazy dog " * 50]), 300))


def uploaded(editor: DatasetEditor, content: bytes = TRAINED, name: str = "mine") -> Json:
    response = editor.post("tokenizers", {"name": name, "upload": editor.send("tokenizer.json", content)})
    assert response.status_code == 201, response.text
    return dict(response.json())


def prepared(editor: DatasetEditor, dataset: Json, tokenizer: Json) -> Json:
    response = editor.post(f"datasets/{dataset['id']}/preparations", {"tokenizer": tokenizer})
    assert response.status_code == 202, response.text
    editor.site.prepare()
    shown = editor.show(dataset)["versions"][0]["preparations"]
    return next(dict(item) for item in shown if item["id"] == response.json()["id"])


def manifest_of(editor: DatasetEditor, kind: str) -> tuple[Preparation, ShardManifest]:
    with editor.site.app.state.database.read() as session:
        rows = session.scalars(select(Preparation)).all()
        row = next(row for row in rows if row.tokenizer["kind"] == kind)
        return row, ShardManifest.model_validate(row.manifest)


def test_an_uploaded_tokenizer_is_listed_and_used(editor: DatasetEditor) -> None:
    tokenizer = uploaded(editor)
    assert (tokenizer["name"], tokenizer["end_of_text"]) == ("mine", "<|endoftext|>")
    assert tokenizer["id"].startswith("tok_") and tokenizer["created_by"] == "Ada"
    assert editor.get("tokenizers") == [tokenizer] and editor.count(Upload) == 0
    made = editor.make(**{"a.jsonl": letters()})
    shown = prepared(editor, made, {"kind": "uploaded", "source": tokenizer["id"]})
    assert shown["state"] == "ready" and shown["tokenizer"]["vocabulary"] == tokenizer["vocabulary"]
    row, manifest = manifest_of(editor, "uploaded")
    assert manifest.tokenizer_digest == tokenizer["digest"]
    folder = editor.path_of(f"{row.team_id}/preparations/{row.digest}")
    assert (folder / "tokenizer.json").read_bytes() == TRAINED
    tokens = np.fromfile(folder / manifest.train.shards[0].name, "<u2")
    assert tokens.max() < tokenizer["vocabulary"] and tokens[-1] == manifest.end_of_text


def test_another_dataset_s_tokenizer_is_used(editor: DatasetEditor) -> None:
    source = editor.make("source", **{"a.jsonl": letters()})
    other = editor.make("other", **{"b.jsonl": letters(50, first=900)})
    shown = prepared(editor, other, {"kind": "dataset", "source": source["id"]})
    assert shown["state"] == "ready" and shown["tokenizer"]["vocabulary"] == 4096
    _, manifest = manifest_of(editor, "dataset")
    _, original = manifest_of(editor, "bpe")
    assert manifest.tokenizer_digest == original.tokenizer_digest


def test_a_larger_vocabulary_than_the_file_s_is_allowed_and_a_smaller_refused(editor: DatasetEditor) -> None:
    tokenizer = uploaded(editor)
    made = editor.make(ready=False, **{"a.jsonl": letters()})
    asked = {"kind": "uploaded", "source": tokenizer["id"]}
    path = f"datasets/{made['id']}/preparations"
    field, message = editor.problem(editor.post(path, {"tokenizer": asked | {"vocabulary": 280}}))
    assert field == "tokenizer.vocabulary" and f"{tokenizer['vocabulary']} token ids" in message
    larger = editor.post(path, {"tokenizer": asked | {"vocabulary": 512}}).json()
    exact = editor.post(path, {"tokenizer": asked}).json()
    assert (
        larger["tokenizer"]["vocabulary"] == 512
        and exact["tokenizer"]["vocabulary"] == tokenizer["vocabulary"]
    )
    assert larger["id"] != exact["id"]


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"kind": "uploaded", "source": "tok_nonsense"}, "no tokenizer with this id"),
        ({"kind": "dataset", "source": "ds_nonsense"}, "no dataset with this id or name"),
        ({"kind": "dataset", "source": "{bytes only}"}, "no BPE tokenizer that is ready"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused(
    editor: DatasetEditor, tokenizer: Json, message: str
) -> None:
    made = editor.make(ready=False, **{"a.jsonl": letters()})
    asked = {
        "kind": tokenizer["kind"],
        "source": made["id"] if "{" in tokenizer["source"] else tokenizer["source"],
    }
    spec = {"name": "x", "data": {"dataset": made["id"], "tokenizer": asked}, "resources": {"device": "cpu"}}
    field, found = editor.problem(editor.post("runs", spec))
    assert field == "data.tokenizer.source" and message in found
    spec_check = editor.post("runs/validate", spec).json()
    assert spec_check["problems"][0]["field"] == "data.tokenizer.source"


def test_a_run_s_spec_is_stored_with_the_vocabulary_filled_in(editor: DatasetEditor) -> None:
    tokenizer = uploaded(editor)
    made = editor.make(**{"a.jsonl": letters()})
    data = {"dataset": made["id"], "tokenizer": {"kind": "uploaded", "source": tokenizer["id"]}}
    spec = {"name": "x", "data": data, "resources": {"device": "cpu"}}
    spec_check = editor.post("runs/validate", spec).json()
    run = editor.post("runs", spec).json()
    assert run["spec"]["data"] == spec_check["spec"]["data"]
    assert (
        run["spec"]["data"]["tokenizer"]["vocabulary"] == tokenizer["vocabulary"]
        and run["spec"]["data"]["version"] == 1
    )


def test_the_same_file_under_another_name_gives_the_same_preparation(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": letters()})
    ids = [
        prepared(editor, made, {"kind": "uploaded", "source": uploaded(editor, name=name)["id"]})["id"]
        for name in ("one", "two")
    ]
    assert ids[0] == ids[1] and editor.count(StoredFile) == 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{}", "upload"),
        (b"no json", "upload"),
        (
            json.dumps({"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}}}).encode(),
            "upload",
        ),
    ],
)
def test_an_invalid_tokenizer_is_refused_and_its_upload_remains(
    editor: DatasetEditor, content: bytes, expected: str
) -> None:
    upload = editor.send("tokenizer.json", content)
    field, message = editor.problem(editor.post("tokenizers", {"name": "bad", "upload": upload}))
    assert field == expected and message
    assert editor.get("tokenizers") == [] and editor.count(Upload) == 1
    unknown = editor.problem(editor.post("tokenizers", {"name": "bad", "upload": "up_nonsense"}))
    assert unknown[0] == "upload" and "There is no upload" in unknown[1]


def test_a_tokenizer_can_be_deleted_only_after_it_was_copied(editor: DatasetEditor) -> None:
    tokenizer = uploaded(editor)
    made = editor.make("letters", **{"a.jsonl": letters()})
    asked = {"tokenizer": {"kind": "uploaded", "source": tokenizer["id"]}}
    editor.post(f"datasets/{made['id']}/preparations", asked)
    refused = editor.delete(f"tokenizers/{tokenizer['id']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "tokenizer_in_use")
    assert refused.json()["datasets"] == ["letters, version 1"]
    editor.site.prepare()
    assert editor.delete(f"tokenizers/{tokenizer['id']}").status_code == 204
    assert editor.delete(f"tokenizers/{tokenizer['id']}").status_code == 404
    delete_queued_bytes(editor.site.app.state.database, editor.site.app.state.store)
    assert editor.count(StoredFile) == 1
    row, _ = manifest_of(editor, "uploaded")
    assert editor.path_of(f"{row.team_id}/preparations/{row.digest}/tokenizer.json").read_bytes() == TRAINED


def test_a_dataset_cannot_be_deleted_until_its_tokenizer_was_copied(editor: DatasetEditor) -> None:
    source = editor.make("source", **{"a.jsonl": letters()})
    other = editor.make("other", **{"b.jsonl": letters(50, first=900)})
    asked = {"tokenizer": {"kind": "dataset", "source": source["id"]}}
    editor.post(f"datasets/{other['id']}/preparations", asked)
    refused = editor.delete(f"datasets/{source['id']}")
    assert (refused.status_code, refused.json()["datasets"]) == (409, ["other, version 1"])
    editor.site.prepare()
    assert editor.delete(f"datasets/{source['id']}").status_code == 204


def test_another_team_s_tokenizer_is_unknown(editor: DatasetEditor) -> None:
    tokenizer = uploaded(editor)
    theirs = editor.site.other_team("globex")
    assert theirs.get("/api/v1/teams/globex/tokenizers").json() == []
    assert theirs.delete(f"/api/v1/teams/globex/tokenizers/{tokenizer['id']}").status_code == 404
