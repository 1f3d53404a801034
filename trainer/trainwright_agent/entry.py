"""The command ``trainwright-agent``: the command line of a node's agent, or what to install for it."""

from trainwright.missing_packages import explain_missing_packages


def main() -> None:
    """Run the command."""
    with explain_missing_packages("trainwright-agent"):
        from trainwright_agent.main import app
    app()
