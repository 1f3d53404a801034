"""Which files a call sends, and under which names."""

import os
from pathlib import Path

import pytest

from trainwright.transport.local_files import MAX_FILES, check_documents, find_files


def write(folder: Path, *names: str, content: str = "x") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def test_files_of_folders_are_listed_in_order_with_relative_names(tmp_path: Path) -> None:
    write(tmp_path / "data", "b.txt", "a/2.txt", "a/1.txt", "a.txt")
    write(tmp_path, "single.txt")
    found = find_files([tmp_path / "data", tmp_path / "single.txt"])
    assert [file.name for file in found.files] == [
        "data/a/1.txt",
        "data/a/2.txt",
        "data/a.txt",
        "data/b.txt",
        "single.txt",
    ]
    assert found.skipped == []


def test_hidden_and_empty_files_in_folders_are_skipped_and_reported(tmp_path: Path) -> None:
    write(tmp_path / "data", "a.txt", ".DS_Store", ".git/config", "b/.hidden")
    write(tmp_path / "data", "empty.txt", content="")
    found = find_files([tmp_path / "data"])
    assert [file.name for file in found.files] == ["data/a.txt"]
    assert found.skipped == ["data/.DS_Store", "data/.git/config", "data/b/.hidden", "data/empty.txt"]


def test_a_hidden_file_that_is_named_explicitly_is_sent(tmp_path: Path) -> None:
    write(tmp_path, ".hidden.txt")
    assert [file.name for file in find_files([tmp_path / ".hidden.txt"]).files] == [".hidden.txt"]


def test_unsendable_files_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    write(tmp_path / "one", "a.txt")
    write(tmp_path / "two", "a.txt")
    write(tmp_path, "empty.txt", content="")
    (tmp_path / "none").mkdir()
    for paths, reason in (
        ([tmp_path / "none"], "no files to upload"),
        ([tmp_path / "empty.txt"], "empty"),
        ([tmp_path / "one" / "a.txt", tmp_path / "two" / "a.txt"], "named 'a.txt'"),
    ):
        with pytest.raises(ValueError, match=reason):
            find_files(paths)
    with pytest.raises(OSError, match="missing"):
        find_files([tmp_path / "missing"])


def test_all_files_that_cannot_form_a_dataset_are_reported(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, "good.txt", "table.csv.gz", "words.json", content='[{"text": "a"}]')
    (data / "long.json").write_text('{"text": "' + "x" * 200_000 + '"}\n')
    (data / "broken.parquet").write_bytes(b"PK\x03\x04" + bytes(100_000))
    (data / "private.txt").write_text("x")
    (data / "private.txt").chmod(0)
    unreadable = (
        [] if os.access(data / "private.txt", os.R_OK) else ["private.txt"]
    )  # root can read everything
    (data / "table.csv").mkdir()
    with pytest.raises(ValueError) as refused:
        check_documents(find_files([data]).files)
    messages = str(refused.value).splitlines()
    assert [Path(message.split()[0]).name for message in messages] == [
        "broken.parquet",
        *unreadable,
        "table.csv.gz",
        "words.json",
    ]
    assert "is a ZIP archive" in messages[0] and "one JSON object on each line" in messages[-1]

    for number in range(20):
        (data / f"{number}.pdf").write_bytes(b"%PDF-1.7")
    with pytest.raises(ValueError, match=r"\nand \d+ more$"):
        check_documents(find_files([data]).files)


def test_a_file_that_vanishes_before_it_is_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    found = find_files([tmp_path / "a.txt"]).files
    (tmp_path / "a.txt").unlink()
    with pytest.raises(ValueError, match=r"a\.txt cannot be opened: No such file"):
        check_documents(found)


def test_more_files_than_a_version_has_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "many", *(f"{number}.txt" for number in range(MAX_FILES + 1)))
    with pytest.raises(ValueError, match="Merge some"):
        find_files([tmp_path / "many"])


def test_a_file_that_changed_since_is_detected(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    (file,) = find_files([tmp_path / "a.txt"]).files
    assert not file.has_changed()
    write(tmp_path, "a.txt", content="longer")
    assert file.has_changed()
    (tmp_path / "a.txt").unlink()
    assert file.has_changed()


@pytest.mark.parametrize("name", ["a\\b.jsonl", "a\nb.jsonl"])
def test_a_name_that_servers_refuse_is_refused_here(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(ValueError, match="Rename the file"):
        find_files([tmp_path / name])
