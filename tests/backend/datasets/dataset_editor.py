"""A client for tests of datasets, over HTTP."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from httpx import Response
from sqlalchemy import func, select

from tests.backend.conftest import Site, send_file
from trainwright_backend.auth.tables import Team
from trainwright_backend.core.local_store import LocalStore

Json = dict[str, Any]


@dataclass(frozen=True)
class DatasetEditor:
    """An editor who works on datasets."""

    site: Site

    def send(self, name: str, content: bytes) -> str:
        """Upload a file; returns the upload's id."""
        return send_file(self.site.admin, self.site.path, name, content)

    def post(self, path: str, body: Json | None = None, key: str | None = None) -> Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.site.admin.post(f"{self.site.path}/{path}", json=body or {}, headers=headers)

    def get(self, path: str, **query: Any) -> Any:
        response = self.site.admin.get(f"{self.site.path}/{path}", params=query)
        assert response.status_code == 200, response.text
        return response.json()

    def delete(self, path: str) -> Response:
        return self.site.admin.delete(f"{self.site.path}/{path}")

    def make(
        self, name: str = "letters", curation: Json | None = None, ready: bool = True, **files: bytes
    ) -> Json:
        """Create a dataset of files, or of a mixture without files."""
        uploads = [self.send(*file) for file in files.items()]
        response = self.post("datasets", {"name": name, "uploads": uploads, "curation": curation or {}})
        assert response.status_code == 201, response.text
        return self.ready(response.json()) if ready else dict(response.json())

    def add(self, dataset: Json, ready: bool = True, **new: Any) -> Json:
        """Add a version."""
        response = self.post(f"datasets/{dataset['id']}/versions", new)
        assert response.status_code == 201, response.text
        return self.ready(response.json()) if ready else dict(response.json())

    def ready(self, dataset: Json) -> Json:
        """Run all jobs, and return the dataset."""
        self.site.prepare()
        return self.show(dataset)

    def show(self, dataset: Json) -> Json:
        return dict(self.get(f"datasets/{dataset['id']}"))

    def documents(self, dataset: Json, number: int = 1, **query: Any) -> list[Json]:
        page = self.get(f"datasets/{dataset['id']}/versions/{number}/documents", **({"limit": 100} | query))
        return list(page["items"])

    def texts(self, dataset: Json, number: int = 1) -> list[str]:
        """The documents that the curation keeps."""
        return [document["text"] for document in self.documents(dataset, number) if document["kept"]]

    def rejected(self, dataset: Json, number: int = 1) -> list[tuple[str, int, str]]:
        found = self.get(f"datasets/{dataset['id']}/versions/{number}/rejected")
        return [(item["file"], item["line"], item["reason"]) for item in found]

    def problem(self, response: Response) -> tuple[str, str]:
        """Field and message of the only problem of a request."""
        assert response.status_code == 422, response.text
        (problem,) = response.json()["errors"]
        return problem["field"], problem["message"]

    def count(self, table: Any) -> int:
        """Rows of a table."""
        with self.site.app.state.database.read() as session:
            return session.scalar(select(func.count()).select_from(table)) or 0

    def stored(self) -> list[str]:
        """Keys of all objects."""
        store: LocalStore = self.site.app.state.store
        found = [path for path in store.root.rglob("*") if path.is_file()]
        return sorted(path.relative_to(store.root).as_posix() for path in found)

    def path_of(self, key: str) -> Path:
        store: LocalStore = self.site.app.state.store
        return store.path_of(key)

    @property
    def team_id(self) -> UUID:
        with self.site.app.state.database.read() as session:
            return session.scalars(select(Team.id).where(Team.slug == self.site.team)).one()


def lines(*texts: object) -> bytes:
    """A `.jsonl` file of texts. Values that are not texts become lines unchanged."""
    return b"".join(
        json.dumps({"text": text} if isinstance(text, str) else text).encode() + b"\n" for text in texts
    )


def letters(count: int = 200, first: int = 0) -> bytes:
    """A `.jsonl` file of different documents."""
    fox = "the quick brown fox jumps over the lazy dog " * 4
    return lines(*(f"letter {number}: {fox}" for number in range(first, first + count)))
