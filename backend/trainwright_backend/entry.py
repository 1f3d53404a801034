"""The command ``trainwright-server``: the operator's command line, or what to install for it."""

from trainwright.missing_packages import explain_missing_packages


def main() -> None:
    """Run the command."""
    with explain_missing_packages("trainwright-server"):
        from trainwright_backend.cli import app
    app()
