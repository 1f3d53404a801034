"""How long new API keys are valid: the same default on the pages, when logging in, and for keys made by commands."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_DAYS = 90
MAX_DAYS = 3_650

KeyDays = Annotated[
    int | None,
    typer.Option(
        min=1, max=MAX_DAYS, help=f"Days until the key expires. Default: {DEFAULT_DAYS}.", show_default=False
    ),
]
NeverExpires = Annotated[
    bool, typer.Option("--never-expires", help="Create a key that is valid until it is revoked.")
]


def key_days(days: int | None, never_expires: bool) -> int | None:
    """Days until a key expires; None for never."""
    if never_expires and days is not None:
        raise typer.BadParameter("Choose one of them.", param_hint="'--days' / '--never-expires'")
    return None if never_expires else days or DEFAULT_DAYS
