"""Links lead somewhere, the site has every page, references name everything, and every command is run or listed."""

import json
import re
from pathlib import Path

import pytest

from infra.reference.pages import project_pages as copied_pages
from infra.reference.pages import reference_pages
from tests.docs.covered import NOT_RUN, RUN, unaccounted
from tests.docs.named_commands import PROGRAMS, named_commands, problem_with
from tests.docs.pages import (
    listed_pages,
    project_pages,
    read_anchors,
    read_blocks,
    read_links,
)
from tests.docs.reader import NOT_RUN as COMMANDS_NOT_RUN
from tests.docs.reader import Reader, commands_of, reader_environment
from tests.docs.terminal import CommandError, open_terminal, split_commands
from trainwright_backend.core.settings import Settings

WRONG_PAGE = """# A page

```sh
{}
```
"""


@pytest.fixture(scope="module")
def pages(repository: Path) -> dict[str, str]:
    """The text of each Markdown page by its path."""
    return {name: (repository / name).read_text() for name in project_pages(repository)}


@pytest.fixture(scope="module")
def references(repository: Path) -> dict[str, str]:
    return reference_pages(repository)


def broken_links(repository: Path, name: str, text: str) -> list[str]:
    """Links of a page to files or headings that do not exist."""
    broken = []
    for link in read_links(text):
        target, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        file = (repository / name).parent / target if target else repository / name
        if not file.exists() or (
            anchor and file.suffix == ".md" and anchor not in read_anchors(file.read_text())
        ):
            broken.append(f"{name}: {link}")
    return broken


def test_relative_links_lead_to_a_file_and_a_heading(repository: Path, pages: dict[str, str]) -> None:
    assert [broken for name, text in pages.items() for broken in broken_links(repository, name, text)] == []


@pytest.mark.parametrize("link", ["missing.md", "concepts.md#missing", "images/missing.png"])
def test_a_broken_link_is_found(link: str, repository: Path) -> None:
    for text in (f"[it]({link})", f'<img src="{link}">'):
        assert broken_links(repository, "docs/api.md", f"A sentence with {text}.") == [f"docs/api.md: {link}"]


def test_the_site_has_every_page(repository: Path, pages: dict[str, str], references: dict[str, str]) -> None:
    docs = repository / "docs"
    listed = {
        page.relative_to(docs).as_posix()
        for name in ("docs/index.md", "docs/adr/index.md")
        for page in listed_pages(repository / name, pages[name])
    }
    committed = {name.removeprefix("docs/") for name in pages if name.startswith("docs/")}
    generated = references.keys() | copied_pages(repository).keys()
    assert (committed | generated) - listed == {"index.md"}
    assert listed - committed == generated


def test_references_name_every_route_command_and_setting(
    repository: Path, references: dict[str, str]
) -> None:
    document = json.loads((repository / "frontend" / "openapi.json").read_text())
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"### `{method.upper()} {path}`\n" in references["reference/rest.md"]
    for name in document["components"]["schemas"]:
        assert f"\n## {name}\n" in references["reference/rest-types.md"]
    for program, group in PROGRAMS.items():
        for name, command in group.commands.items():
            is_listed = f"### `{program} {name}`\n" in references["reference/cli.md"]
            assert is_listed != command.hidden, f"{program} {name}"
    for setting in Settings.model_fields:
        assert f"TRAINWRIGHT_{setting.upper()}" in references["reference/settings.md"]


def test_every_block_of_commands_is_run_or_listed_with_a_reason(pages: dict[str, str]) -> None:
    blocks = [block for name, text in pages.items() for block in read_blocks(name, text)]
    assert unaccounted(blocks) == []
    places = {(block.page, section) for block in blocks for section in (None, block.section)}
    assert RUN | NOT_RUN.keys() <= places, "a page or section that no longer exists"
    commands = [command for block in blocks for command in commands_of(block)]
    for start in COMMANDS_NOT_RUN:
        assert any(command.startswith(start) for command in commands), f"no page has {start!r} any more"


def test_a_block_that_is_neither_run_nor_listed_is_found() -> None:
    blocks = read_blocks("docs/new.md", WRONG_PAGE.format("trainwright runs list"))
    assert unaccounted(blocks) == ["docs/new.md:3"]


def test_pages_name_only_commands_and_options_that_exist(pages: dict[str, str]) -> None:
    checked = {name: text for name, text in pages.items() if name != "CHANGELOG.md"}
    commands = [(name, command) for name, text in checked.items() for command in named_commands(text)]
    assert len(commands) > 100
    wrong = [f"{name}: {problem}" for name, command in commands if (problem := problem_with(command))]
    assert wrong == []


def test_pages_name_only_targets_of_make_that_exist(repository: Path, pages: dict[str, str]) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (repository / "Makefile").read_text(), re.MULTILINE))
    targets |= set(
        re.findall(r"^SLOW = (.+)$", (repository / "Makefile").read_text(), re.MULTILINE)[0].split()
    )
    for name, text in pages.items():
        for named in re.findall(r"(?:`|^)make ([a-z][a-z-]*)", text, re.MULTILINE):
            assert named in targets or name == "CHANGELOG.md", f"{name}: make {named}"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("trainwright runs lst", "there is no lst"),
        ("trainwright runs list --sate failed", "there is no option --sate"),
        ("trainwright members list|set-roles", "there is no set-roles"),
        ("trainwright-server backup X --folder Y", "there is no option --folder"),
    ],
)
def test_a_wrong_name_in_a_command_is_found(command: str, problem: str) -> None:
    for text in (WRONG_PAGE.format(command), f"Use `{command}` for it."):
        [found] = named_commands(text)
        assert problem_with(found) == f"{command}: {problem}"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("trainwright presets --jsn", "No such option"),
        ("trainwright runs show run_…", "no earlier command printed a run_…"),
        ("false | true", "exit code 1"),
    ],
)
def test_a_wrong_command_in_a_page_fails(
    command: str, message: str, repository: Path, tmp_path: Path
) -> None:
    environment = reader_environment(repository, tmp_path)
    [block] = read_blocks("docs/planted.md", WRONG_PAGE.format(f"echo before\n{command}"))
    with open_terminal(tmp_path / "reader", environment) as terminal:
        reader = Reader(terminal, tmp_path / "reader")
        terminal.run(f"PATH={repository}/.venv/bin:$PATH")
        with pytest.raises(CommandError, match=rf"docs/planted\.md:3: {re.escape(command)}") as raised:
            reader.follow(block)
    assert message in str(raised.value)


def test_a_block_is_typed_command_by_command() -> None:
    text = "# a comment\ncat <<'END'\nline\nEND\nfor n in 1 2; do\n  echo $n\ndone\necho one \\\n  two\necho three\n"
    assert split_commands(text) == [
        "cat <<'END'\nline\nEND\n",
        "for n in 1 2; do\n  echo $n\ndone\n",
        "echo one \\\n  two\n",
        "echo three\n",
    ]
