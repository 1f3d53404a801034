"""The documentation's site, built by `make docs`. Its pages are Markdown that is readable without the site too."""

import importlib.metadata
import logging
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from infra.reference.pages import write_pages  # noqa: E402  # the repository must be on the path

logging.getLogger("alembic").setLevel(
    logging.WARNING
)  # the theme's highlighting shows messages of all loggers

project = "Trainwright"
release = importlib.metadata.version("trainwright")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Trainwright {release}"
html_copy_source = False
html_show_copyright = False

default_role = "code"
"""Docstrings write code between single backticks, as Markdown does."""

myst_heading_anchors = 4
"""Links such as `operations.md#backup` work for headings down to this level, as they do without the site."""

autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "model_config, __init__, __new__", "undoc-members": True}


def read_google_sections(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Turn `Args:` and the like into fields. The extension napoleon would also read `a: b` under a field as a type."""
    if what not in ("attribute", "data", "property"):
        lines[:] = str(GoogleDocstring(lines, Config(), what=what, name=name, obj=obj)).splitlines()


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", lambda app: write_pages(REPOSITORY))
    app.connect("autodoc-process-docstring", read_google_sections)
