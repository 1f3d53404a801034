"""Servers with a certificate from an authority of their own."""

import asyncio
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from trainwright.cli import app
from trainwright.transport.async_connection import AsyncConnection
from trainwright.transport.connection import Connection
from trainwright.transport.tls import is_untrusted


class _NoTeams(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"items": [], "next_cursor": null}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def write_certificate(folder: Path, authority: str = "our own authority") -> tuple[Path, Path]:
    """A certificate for localhost that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, authority)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "authority.crt", folder / "server.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return certificate_file, key_file


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return write_certificate(tmp_path)


@pytest.fixture
def server(certificate: tuple[Path, Path]) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with HTTPServer(("127.0.0.1", 0), _NoTeams) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"https://localhost:{listening.server_port}"
        listening.shutdown()


def test_the_authority_of_ssl_cert_file_is_trusted(
    server: str, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert fetch(server) == fetch_asynchronously(server) == 200


if shutil.which("openssl"):  # its program computes the names of files in OpenSSL's folder

    def test_the_authorities_of_the_operating_system_are_trusted(
        server: str, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command = ["openssl", "x509", "-noout", "-hash", "-in", str(certificate[0])]
        name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        system = tmp_path / "system"
        system.mkdir()
        shutil.copy(certificate[0], system / f"{name}.0")
        (tmp_path / "other").mkdir()
        monkeypatch.setenv(
            "SSL_CERT_FILE", str(write_certificate(tmp_path / "other", "another authority")[0])
        )
        monkeypatch.setenv("SSL_CERT_DIR", str(system))
        assert fetch(server) == fetch_asynchronously(server) == 200


def fetch(server: str) -> int:
    with Connection(server) as connection:
        return connection.fetch("/teams").status_code


def fetch_asynchronously(server: str) -> int:
    async def call() -> int:
        async with AsyncConnection(server) as connection:
            return (await connection.fetch("/teams")).status_code

    return asyncio.run(call())


def test_another_authority_is_refused_at_once_with_the_remedy(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)

    def sleep(seconds: float) -> None:
        raise AssertionError("another attempt would not help")

    for module in ("connection", "async_connection"):
        monkeypatch.setattr(f"trainwright.transport.{module}.sleep", sleep)
    for call in (fetch, fetch_asynchronously):
        with pytest.raises(httpx.ConnectError) as refused:
            call(server)
        assert is_untrusted(refused.value)
    listed = CliRunner().invoke(app, ["runs", "list", "--server", server, "--key", "tw_x", "--team", "lab"])
    assert listed.exit_code == 1 and "or name its file in SSL_CERT_FILE." in listed.stderr.replace("\n", " ")


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_is_named(
    tmp_path: Path, content: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    listed = CliRunner().invoke(
        app, ["runs", "list", "--server", "https://localhost:1", "--key", "tw_x", "--team", "lab"]
    )
    assert listed.exit_code == 1
    assert f"SSL_CERT_FILE names {file}, which has no readable certificates" in listed.stderr.replace(
        "\n", ""
    )
