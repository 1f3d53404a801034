"""Files are replaced completely or not at all."""

import stat
from pathlib import Path

import pytest

from trainwright.durable_files import (
    SHARED,
    make_folder_durably,
    open_durably,
    rename_durably,
    write_durably,
)


def test_a_file_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    write_durably(target, b"new")
    assert target.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_new_file_is_private_unless_it_is_shared(tmp_path: Path) -> None:
    write_durably(tmp_path / "private", b"")
    write_durably(tmp_path / "shared", b"", SHARED)
    (tmp_path / "usual").touch()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes["private"] == 0o600
    assert modes["shared"] == modes["usual"]


def test_a_failed_write_does_not_change_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), open_durably(target) as file:
        file.write(b"half of the new")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_new_content_is_not_visible_before_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with open_durably(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_text() == "old"
    assert target.read_text() == "new"


def test_a_folder_is_created_with_its_parents_and_renamed(tmp_path: Path) -> None:
    folder = tmp_path / "a/b/c"
    make_folder_durably(folder)
    make_folder_durably(folder)
    rename_durably(folder, tmp_path / "a/b/d")
    assert (tmp_path / "a/b/d").is_dir() and not folder.exists()


def test_the_folder_may_be_renamed_as_soon_as_the_file_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's first rank renames the folder of a checkpoint when it sees the manifests of the other ranks."""
    folder, complete = tmp_path / "draft", tmp_path / "complete"
    folder.mkdir()
    replace = Path.replace

    def replace_and_rename_folder(source: Path, target: Path) -> Path:
        replaced = replace(source, target)
        folder.rename(complete)
        return replaced

    monkeypatch.setattr(Path, "replace", replace_and_rename_folder)
    write_durably(folder / "rank-1.json", b"{}")
    assert (complete / "rank-1.json").read_bytes() == b"{}"
