from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.prepare.documents import Source

Store = Callable[[str, bytes], Source]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Stores bytes in a file whose path does not reveal its name, as the object store does."""
    folder = tmp_path / "stored"
    folder.mkdir()

    def keep(name: str, content: bytes) -> Source:
        path = folder / f"{len(list(folder.iterdir()))}"
        path.write_bytes(content)
        return Source(name, path)

    return keep
