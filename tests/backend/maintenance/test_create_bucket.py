"""The command that creates the bucket of a new store."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainwright_backend.cli import app
from trainwright_backend.core.open_store import open_store
from trainwright_backend.core.settings import Settings

SECRET = "a secret for signing links, long"


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1"])
def test_a_bucket_is_created_once_and_takes_objects(
    s3_endpoint: str, region: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "secret_key": SECRET,
        "data_dir": str(tmp_path),
        "object_store_url": f"s3://created-in-{region}/folder",
        "s3_endpoint": s3_endpoint,
        "s3_region": region,
        "s3_access_key": "key",
        "s3_secret_key": "secret",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"TRAINWRIGHT_{name.upper()}", value)
    first, second = (CliRunner().invoke(app, ["objects", "create-bucket"]) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output + second.output
    assert first.output.endswith("created\n")
    store = open_store(Settings())
    store.write("a/b", b"content")
    assert b"".join(store.open_read("a/b")) == b"content"


def test_a_store_that_does_not_answer_or_refuses_is_named(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_SECRET_KEY", SECRET)
    monkeypatch.setenv("TRAINWRIGHT_S3_ACCESS_KEY", "key")
    monkeypatch.setenv("TRAINWRIGHT_S3_SECRET_KEY", "secret")
    refused = CliRunner().invoke(app, ["objects", "create-bucket"])
    assert refused.exit_code == 1 and "TRAINWRIGHT_OBJECT_STORE_URL is not set" in refused.output
    monkeypatch.setenv("TRAINWRIGHT_OBJECT_STORE_URL", "s3://bucket")
    monkeypatch.setenv("TRAINWRIGHT_S3_ENDPOINT", "http://127.0.0.1:9")
    silent = CliRunner().invoke(app, ["objects", "create-bucket"])
    assert silent.exit_code == 1 and "does not respond" in silent.output
    monkeypatch.setenv("TRAINWRIGHT_S3_ENDPOINT", f"{s3_endpoint}/moto-api")  # no bucket there
    invalid = CliRunner().invoke(app, ["objects", "create-bucket"])
    assert invalid.exit_code == 1 and "did not create the bucket" in invalid.output
