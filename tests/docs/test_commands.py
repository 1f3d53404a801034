"""The commands of the README and of the tutorials work as printed, against a real platform and real trainings."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.docs.covered import FIRST_TUTORIAL, NEXT_PAGES, is_run
from tests.docs.pages import Block, read_blocks
from tests.docs.reader import Reader, commands_of, reader_environment
from tests.docs.terminal import open_terminal

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow(target="docs-check")]


@contextmanager
def open_reader(repository: Path, folder: Path) -> Iterator[Reader]:
    """A reader in an empty folder with the environment of `make setup`."""
    folder.mkdir()
    (folder / ".venv").symlink_to(repository / ".venv")
    with (
        open_terminal(folder, reader_environment(repository, folder / "home")) as terminal,
        closing(Reader(terminal, folder)) as reader,
    ):
        yield reader


@pytest.fixture(scope="module")
def course(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader who has done the first tutorial."""
    with open_reader(repository, tmp_path_factory.mktemp("course") / "reader") as reader:
        for block in blocks_of(repository, FIRST_TUTORIAL):
            reader.follow(block)
        yield reader


def blocks_of(repository: Path, page: str) -> list[Block]:
    return read_blocks(page, (repository / page).read_text())


@pytest.mark.parametrize("page", NEXT_PAGES)
def test_a_page_works_after_the_first_tutorial(page: str, course: Reader, repository: Path) -> None:
    for block in blocks_of(repository, page):
        course.follow(block)


def test_the_readme_works_with_the_files_of_the_first_tutorial(repository: Path, tmp_path: Path) -> None:
    used = [block for block in blocks_of(repository, "README.md") if is_run(block)]
    first = [command for block in blocks_of(repository, FIRST_TUTORIAL) for command in commands_of(block)]
    files = [command for command in first if "stdlib.jsonl" in command and "<<" in command]
    files += [command for command in first if command.startswith("cat > spec.json")]
    assert len(files) == 2 and used
    with open_reader(repository, tmp_path / "reader") as reader:
        for command in files:
            reader.type_as_printed(f"(. .venv/bin/activate\n{command})")
        for block in used:
            reader.follow(block)


def test_the_trainer_works_without_the_platform(repository: Path, tmp_path: Path) -> None:
    with open_reader(repository, tmp_path / "reader") as reader:
        for block in blocks_of(repository, "docs/trainer.md"):
            reader.follow(block)
