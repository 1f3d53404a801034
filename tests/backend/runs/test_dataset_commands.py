"""What the commands about datasets print for people."""

import json
from pathlib import Path

import pytest

from tests.backend.conftest import upload_letters
from tests.backend.runs.conftest import Served
from tests.backend.scripted_agent import Scene


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


def test_a_preview_shows_few_documents_with_all_their_lines_indented(
    served: Served, key: str, tmp_path: Path
) -> None:
    file = tmp_path / "songs.jsonl"
    file.write_text("".join(json.dumps({"text": f"Song {n}\n\nLa \x1b[2Jla" * 30}) + "\n" for n in range(9)))
    for option, count in (("", 5), (" --documents 2", 2)):
        shown = served.command(key, f"datasets preview {file}{option}")
        assert shown.exit_code == 0, shown.output
        title, field, *lines = shown.stdout.splitlines()
        assert title == "songs.jsonl  JSON Lines, uncompressed" and field.startswith("  field text;")
        assert [line[:9] for line in lines if " | Song 0" in line] == ["   1 | So"]
        assert sum(line[:4].strip().isdecimal() for line in lines) == count
        assert all(line[4:7] == " | " or line[4:6] == " |" for line in lines)
        assert "\x1b" not in shown.stdout and sum(line.endswith("…") for line in lines) == count
        before, after = (
            shown.stderr.index(words) for words in ("keeps them for a day", "No dataset was created")
        )
        assert before < after
    preview = json.loads(served.command(key, f"datasets preview {file} --json").stdout)
    assert len(preview["files"][0]["documents"]) == 9


def test_counts_are_for_people_unless_json_is_asked_for(
    scene: Scene, served: Served, key: str, tmp_path: Path
) -> None:
    lines = b"".join(b'{"text": "letter %d"}\n' % (n % 150) for n in range(200))
    curation = {"drop_duplicates": True, "rules": {"min_characters": 9}}
    made = upload_letters(scene.site, "again", curation=curation, **{"letters.jsonl": lines})
    expected = [
        "140 of 200 documents kept, 1,310 characters, 50 duplicates, 0 rejected",
        "  50 dropped as duplicates",
        "  10 dropped as too short",
    ]
    file = tmp_path / "curation.yaml"
    file.write_text("drop_duplicates: true\nrules:\n  min_characters: 9\n")
    counted = served.command(key, f"datasets count {file} --dataset {made['id']}")
    assert counted.stdout.splitlines() == expected, counted.output
    as_json = served.command(key, f"datasets count {file} --dataset {made['id']} --json")
    assert json.loads(as_json.stdout)["dropped"] == {"duplicate": 50, "min_characters": 10}
    shown = served.command(key, f"datasets show {made['id']}").stdout
    assert "\n".join(f"  {line}" for line in expected) in shown
    assert " training and " in shown and " validation tokens" in shown


def test_rejected_documents_are_shown_below_their_number(scene: Scene, served: Served, key: str) -> None:
    made = upload_letters(
        scene.site, "again", **{"letters.jsonl": b'{"text": "a"}\n' * 900 + b"{broken\n" * 6}
    )
    lines = served.command(key, f"datasets show {made['id']}").stdout.splitlines()
    numbers = next(number for number, line in enumerate(lines) if line.endswith(" 6 rejected"))
    assert [line.split(":")[0] for line in lines[numbers + 1 :][:6]][:5] == ["    letters.jsonl"] * 5
    assert lines[numbers + 6].startswith("  prep_")


def test_add_keeps_the_files_of_the_newest_version_unless_they_are_replaced(
    scene: Scene, served: Served, key: str, tmp_path: Path
) -> None:
    made = upload_letters(scene.site, "again")
    path = f"{scene.site.path}/datasets/{made['id']}"
    file = tmp_path / "later.jsonl"
    for text, option, names in (
        ("first", "", ["later.jsonl", "letters.jsonl"]),
        ("second", " --replace-files", ["later.jsonl"]),
    ):
        file.write_text(json.dumps({"text": text}) + "\n")
        added = served.command(key, f"datasets add {made['id']} {file} --no-wait{option}")
        assert added.exit_code == 0, added.output
        newest = scene.site.admin.get(path).json()["versions"][0]
        assert sorted(part["name"] for part in newest["files"]) == names


def test_a_dataset_can_be_given_by_a_name_that_no_other_dataset_has(
    scene: Scene, served: Served, key: str, tmp_path: Path
) -> None:
    made = upload_letters(scene.site, "novels")
    twins = [upload_letters(scene.site, "twin")["id"] for _ in range(2)]
    path = f"{scene.site.path}/datasets/{made['id']}"
    curation, more = tmp_path / "curation.yaml", tmp_path / "more.jsonl"
    curation.write_text("drop_duplicates: true\n")
    more.write_text('{"text": "more"}\n')
    shown = served.command(key, "datasets show novels --json")
    assert shown.exit_code == 0 and json.loads(shown.stdout)["id"] == made["id"], shown.output
    preparation = json.loads(shown.stdout)["versions"][0]["preparations"][0]["id"]
    for words, target in (
        ("rejected novels", f"GET {path}/versions/1/rejected"),
        ("documents novels", f"GET {path}/versions/1/documents"),
        (f"curate novels {curation}", f"POST {path}/versions"),
        ("prepare novels --version 1", f"POST {path}/preparations"),
        (f"cancel-preparation novels {preparation}", f"POST {path}/preparations/{preparation}/cancel"),
        (f"add novels {more} --no-wait", f"POST {path}/versions"),
        ("delete novels --version 3", f"DELETE {path}/versions/3"),
        ("delete novels", f"DELETE {path}"),
    ):
        served.command(key, f"datasets {words}")
        assert served.received[-1].target == target
    ambiguous = served.command(key, "datasets delete twin")
    assert ambiguous.exit_code == 1 and "2 datasets are named 'twin'" in ambiguous.stderr
    assert all(twin in ambiguous.stderr for twin in twins)
    unknown = served.command(key, "datasets show novels")
    assert unknown.exit_code == 1
    assert (
        "No dataset of this team has the id or the name 'novels'. `trainwright datasets list` lists them."
        in unknown.stderr
    )


def test_counts_are_of_a_dataset_given_by_name(
    scene: Scene, served: Served, key: str, tmp_path: Path
) -> None:
    upload_letters(scene.site, "novels")
    curation = tmp_path / "curation.yaml"
    curation.write_text("drop_duplicates: true\n")
    counted = served.command(key, f"datasets count {curation} --dataset novels")
    assert counted.exit_code == 0 and "documents kept" in counted.stdout, counted.output
