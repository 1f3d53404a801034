"""Print the OpenAPI document: ``python -m trainwright_backend.openapi``. It needs no database, and its output is deterministic."""

import json

from pydantic import SecretStr

from trainwright_backend.core.settings import MIN_SECRET_LENGTH, Settings
from trainwright_backend.main import create_app


def document() -> str:
    """The document as indented JSON with sorted keys."""
    # The application is described, not started, so this key signs nothing.
    settings = Settings(secret_key=SecretStr("-" * MIN_SECRET_LENGTH), control_loop=False)
    return json.dumps(create_app(settings).openapi(), indent=1, sort_keys=True, ensure_ascii=False)


if __name__ == "__main__":
    print(document())
