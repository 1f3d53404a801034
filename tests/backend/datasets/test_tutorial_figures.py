"""The tutorial on data prints figures: its files, uploaded with its curation, give them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.backend.datasets.dataset_editor import DatasetEditor
from tests.docs.pages import read_blocks
from trainwright.commands.curation_counts import statistics_lines
from trainwright.contracts.api.datasets import CurationCounts, Statistics

PAGE = "docs/tutorials/your-data.md"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


def test_the_files_of_the_tutorial_have_the_duplicates_and_short_documents_that_it_shows(
    editor: DatasetEditor, repository: Path, tmp_path: Path
) -> None:
    blocks = read_blocks(PAGE, (repository / PAGE).read_text())
    commands = next(block for block in blocks if "writerow" in block.text).text
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, env=path, check=True)
    files = {file.name: file.read_bytes() for file in sorted((tmp_path / "texts").iterdir())}

    curation = {"read": {"text_documents": "blank_line"}, "drop_duplicates": True}
    made = editor.make("sea", curation | {"rules": {"min_characters": 30}}, **files)
    counted = Statistics.model_validate(made["versions"][0]["statistics"])
    assert counted.dropped == {"duplicate": 50, "min_characters": 20} and counted.rejected == 1
    shown = next(block.text for block in blocks if "documents kept" in block.text)
    assert shown == "\n".join(statistics_lines(counted)) + "\n"

    other = {"dataset": made["id"], "curation": curation | {"rules": {"min_characters": 45}}}
    stricter = CurationCounts.model_validate(editor.post("datasets/count", other).json())
    assert stricter.dropped["min_characters"] == 30, "also the first ten songs"
