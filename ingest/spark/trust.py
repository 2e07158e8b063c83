"""Make Java trust the same certificates as Python: those of the machine, and those that the user has named.

A company's proxy or mirror often has a private certificate. pip and other tools use the variables below and the
system's store; Java uses only its bundled store.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

from ingest.spark import cache

VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_FOLDER = "SSL_CERT_DIR"
_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_PASSWORD = "changeit"  # noqa: S105 - what Java itself uses: a trust store holds nothing secret
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


def java_options() -> list[str]:
    """Options that give Java a trust store made of `bundles`; none if the user has set one.

    Raises:
        SetupError: the cache cannot be written.
    """
    if any("javax.net.ssl.trustStore" in os.environ.get(name, "") for name in _JAVA):
        return []
    store = _trust_store()
    if store is None:
        return []
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}"]


def bundles() -> list[Path]:
    """The certificate files that this machine's tools use, named ones first; only those that exist."""
    named = [Path(os.environ[name]).expanduser() for name in VARIABLES if os.environ.get(name)]
    paths = ssl.get_default_verify_paths()
    system = [Path(path) for path in (paths.cafile, paths.openssl_cafile) if path]
    folders = [Path(path) for path in (os.environ.get(_FOLDER), paths.capath, paths.openssl_capath) if path]
    listed = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
    return [path for path in dict.fromkeys([*named, *system, *_own(), *listed]) if path.is_file()]


def missing() -> list[str]:
    """Variables that name a file which does not exist, as ``NAME=path``."""
    return [
        f"{name}={path}" for name in VARIABLES if (path := os.environ.get(name)) and not Path(path).is_file()
    ]


def _own() -> Iterator[Path]:
    """The public authorities bundled with pip's libraries."""
    try:
        import certifi
    except ImportError:
        return
    yield Path(certifi.where())


def _trust_store() -> Path | None:
    """A PKCS12 file with all certificates, created once for each set of them."""
    certificates = sorted({text for bundle in bundles() for text in _PEM.findall(_read(bundle))})
    if not certificates:
        return None
    name = hashlib.sha256(b"\n".join(certificates)).hexdigest()[:16]
    store = cache.writable("trust") / f"{name}.p12"
    if not store.is_file():
        partial = store.with_name(f"{name}.{os.getpid()}")
        try:
            partial.write_bytes(_pkcs12(certificates))
            partial.replace(store)  # atomically: another process may be starting Java
        except OSError as error:
            raise cache.unwritable(store, error) from error
    return store


def _read(bundle: Path) -> bytes:
    try:
        return bundle.read_bytes()
    except OSError:  # a folder of certificates may contain some that this user may not read
        return b""


def _pkcs12(pems: list[bytes]) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    certificates = {}
    for pem in pems:
        with warnings.catch_warnings():
            # old authorities with serial numbers that a later standard forbids
            warnings.simplefilter("ignore")
            try:
                certificate = x509.load_pem_x509_certificate(pem)
            except ValueError:  # a certificate that Python cannot read would not help Java either
                continue
        name = certificate.fingerprint(hashes.SHA256()).hex()
        certificates[name] = pkcs12.PKCS12Certificate(certificate, name.encode())
    password = BestAvailableEncryption(_PASSWORD.encode())
    return pkcs12.serialize_java_truststore(list(certificates.values()), password)
