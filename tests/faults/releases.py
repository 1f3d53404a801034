"""An earlier release of the platform beside the current one, and installations that are upgraded while their processes run.

`earlier_release.md` describes the archive.
"""

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ARCHIVE = Path(__file__).with_name("earlier_release.tar.xz")
EARLIER_REVISION = "0039"
"""Of the database's tables in the earlier release."""


def unpack_earlier_release(folder: Path) -> Path:
    """The folder of its code below ``folder``."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "earlier_release"


@dataclass(frozen=True)
class Installation:
    """The code that a machine's processes import: a link to the folder of a release.

    Like an upgraded virtual environment, it has another release at the same place, which processes import that start later.
    """

    link: Path

    @property
    def python_path(self) -> str:
        """For `PYTHONPATH`; the trainers of the tests are there too."""
        packages = [self.link / part for part in ("sdk", "backend", "trainer")]
        return os.pathsep.join(map(str, [*packages, REPOSITORY]))

    def install(self, release: Path) -> None:
        """Replace the release, in one step."""
        new = self.link.with_name(f"{self.link.name}.new")
        new.symlink_to(release)
        new.replace(self.link)
