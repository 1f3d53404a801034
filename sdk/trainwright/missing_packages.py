"""What the commands say when the wheel was installed without the packages that they need."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version


@contextmanager
def explain_missing_packages(command: str) -> Iterator[None]:
    """Exit with a sentence if an import in the block lacks a package that is not ours."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing.startswith("trainwright"):
            raise
        sys.exit(
            f"{command} needs the package {missing}, which is not installed. Install all that the server and its nodes need: "
            "pip install 'trainwright[all]', or the file of the wheel with [all] after its name: "
            f"pip install './trainwright-{version('trainwright')}-py3-none-any.whl[all]'."
        )
