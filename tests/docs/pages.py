"""Reads the project's Markdown: blocks of commands with the prose before them, links, and tables of contents."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

LANGUAGES = {"sh": "bash", "bash": "bash", "python": "python"}
"""Languages of blocks that a reader runs, and the program that runs them."""


@dataclass(frozen=True)
class Block:
    """A fenced block, and where it is."""

    page: str
    section: str
    """The heading above it of the second level, `## …`, without its signs. Empty before the first one."""
    line: int
    language: str
    text: str
    prose: str
    """What the section says between the previous block and this one."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def read_blocks(page: str, text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found: list[Block] = []
    section, prose = "", ""
    for token, content in _tokens(text):
        if token.type == "heading_open" and token.tag == "h2":
            section, prose = content, ""
        elif token.type == "inline":
            prose += f"{token.content}\n"
        elif token.type == "fence" and token.map is not None:
            found.append(Block(page, section, token.map[0] + 1, token.info.strip(), token.content, prose))
            prose = ""
    return found


def read_links(text: str) -> Iterator[str]:
    """The address of every link and image."""
    for token, _ in _tokens(text):
        for part in [token, *(token.children or [])]:
            target = part.attrGet("href") or part.attrGet("src")
            if target is not None:
                yield str(target)
            if part.type in ("html_block", "html_inline"):
                yield from re.findall(r'(?:src|href)="([^"]+)"', part.content)


def read_anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site name them."""
    anchors: set[str] = set()
    for token, content in _tokens(text):
        if token.type == "heading_open":
            name = re.sub(r"[^\w\- ]", "", content.lower()).replace(" ", "-")
            number = 0
            while (numbered := f"{name}-{number}" if number else name) in anchors:
                number += 1
            anchors.add(numbered)
    return anchors


def listed_pages(page: Path, text: str) -> set[Path]:
    """The pages that the tables of contents of ``page`` list, as files."""
    found: set[Path] = set()
    for token, _ in _tokens(text):
        if token.type == "fence" and token.info.strip() == "{toctree}":
            entries = [line for line in token.content.splitlines() if line and not line.startswith(":")]
            for entry in entries:
                matches = list(page.parent.glob(f"{entry}.md"))
                found.update(matches or [page.parent / f"{entry}.md"])
    return found


def project_pages(repository: Path) -> list[str]:
    """The Markdown pages that git knows or would add, at the root and below `docs`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True).stdout
    return sorted(
        name
        for name in names.split("\0")
        if ("/" not in name or name.startswith("docs/")) and (repository / name).is_file()
    )


def _tokens(text: str) -> Iterator[tuple[Token, str]]:
    """Each token, with the plain text that follows it: that of a heading for its first token."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        plain = "" if following is None else "".join(child.content for child in following.children or [])
        yield token, plain
