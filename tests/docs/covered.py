"""The command blocks that tests run, and the reasons for those that they leave out."""

from tests.docs.pages import LANGUAGES, Block

FIRST_TUTORIAL = "docs/tutorials/first-model.md"
NEXT_PAGES = (
    "docs/how-to/team.md",
    "docs/how-to/sweep.md",
    "docs/how-to/continue-training.md",
    "docs/tutorials/your-data.md",
    "docs/tutorials/fp8.md",
    "docs/tutorials/several-ranks.md",
    "docs/tutorials/second-node.md",
    "docs/tutorials/operate.md",
)
"""They continue from the first tutorial. The last one stops the platform."""

RUN = frozenset(
    {
        ("README.md", "Use it"),
        ("docs/trainer.md", None),
        (FIRST_TUTORIAL, None),
        *((page, None) for page in NEXT_PAGES),
    }
)
"""Page and section, or None for an entire page, whose commands `make docs-check` runs."""

NOT_RUN: dict[tuple[str, str | None], str] = {
    ("README.md", "Install it"): "needs a wheel in an empty environment; `make wheel-check` does the same",
    ("README.md", "Try it"): "`make demo`, which tests/integration/test_demo.py runs",
    ("README.md", "Test it"): "`make test` itself",
    ("docs/api.md", "With curl"): "the tests in tests/backend send these requests",
    ("docs/api.md", "Datasets"): "the tests in tests/backend send these requests",
    ("docs/api.md", "Python"): "an address and a key of nobody; tests/live.py uses the same calls",
    ("docs/operations.md", "Containers"): "needs a container engine; `make compose-check` does the same",
    (
        "docs/operations.md",
        "With systemd",
    ): "needs root and systemd; `make systemd-check` runs them in a container",
    (
        "docs/operations.md",
        "Objects in a bucket",
    ): "needs a bucket, which tests/backend/core/test_object_store.py has",
    ("docs/operations.md", "Backup"): "names of places of the reader's; the tutorial on operating runs them",
    (
        "docs/operations.md",
        "Adding a node",
    ): "names another machine; the tutorial on a second node and `make systemd-check` run them",
    ("docs/operations.md", "Metrics"): "settings, not commands",
    ("docs/operations.md", "Traces"): "a setting, not a command",
    (
        "docs/operations.md",
        "Support bundle",
    ): "reads the journal of systemd; `make systemd-check` and the tutorial on operating run them",
    (
        "docs/fp8.md",
        None,
    ): "measures the figures of the page; `make bench-dry` runs the same code at toy size",
    ("docs/faults.md", None): "injects faults for an hour",
    ("docs/benchmarks.md", None): "measures for hours, or needs a GPU; `make bench-dry` runs it at toy size",
}
"""Page and section whose commands no test runs, with the reason. Their programs and options are checked to exist."""


def is_run(block: Block) -> bool:
    """Whether `make docs-check` runs the block."""
    return not RUN.isdisjoint(_places(block))


def unaccounted(blocks: list[Block]) -> list[str]:
    """Where blocks are that a reader runs, but neither a test runs nor `NOT_RUN` names."""
    return [
        block.place
        for block in blocks
        if block.language in LANGUAGES and not is_run(block) and NOT_RUN.keys().isdisjoint(_places(block))
    ]


def _places(block: Block) -> set[tuple[str, str | None]]:
    return {(block.page, None), (block.page, block.section)}
