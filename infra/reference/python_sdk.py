"""The pages that tell Sphinx which modules of the SDK to document from their docstrings."""

from collections.abc import Iterable
from pathlib import Path

CALLS_HEAD = """# Python SDK

`pip install` of the wheel gives the package `trainwright`. [The guide](../api.md#python) has examples. `AsyncClient` and
`AsyncTeamClient` of `trainwright.async_client` have the same methods as `Client` and `TeamClient`, to be awaited. What methods take
and return are the [types of the REST API](rest-types.md), as classes in `trainwright.contracts.api`.
"""

SPEC_HEAD = """# Python types of a run's configuration

The classes of a spec. [The configuration of a run](../spec.md) lists the same fields as keys.
"""

CALLS = ("trainwright.client", "trainwright.transport.errors")


def calls_page() -> str:
    """The clients with the methods of their base classes, and their errors."""
    return _page(CALLS_HEAD, CALLS, "   :inherited-members: object, Exception, BaseException\n")


def spec_page(contracts: Path) -> str:
    """The classes of a spec, one module for each of its sections."""
    names = sorted(file.stem for file in contracts.glob("*_spec.py"))
    return _page(SPEC_HEAD, (f"trainwright.contracts.{name}" for name in names))


def _page(head: str, modules: Iterable[str], options: str = "") -> str:
    return head + "".join(_section(module, options) for module in modules)


def _section(module: str, options: str) -> str:
    # Docstrings are reStructuredText, which Markdown's pages need to be told.
    return f"\n## `{module}`\n\n```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n{options}```\n"
