"""Print the OpenAPI document: ``python -m trainwright_backend.openapi``. Needs no database; same code, same bytes."""

import json

from pydantic import SecretStr

from trainwright_backend.core.settings import SHORTEST_SECRET, Settings
from trainwright_backend.main import create_app


def document() -> str:
    """The document as indented JSON with sorted keys."""
    # The application is only described, never started: nothing is signed with this.
    settings = Settings(secret_key=SecretStr("-" * SHORTEST_SECRET), control_loop=False)
    return json.dumps(create_app(settings).openapi(), indent=1, sort_keys=True, ensure_ascii=False)


if __name__ == "__main__":
    print(document())
