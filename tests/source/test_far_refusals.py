"""What Oracle and SQL Server refuse, or cannot do, is one sentence; and how they are connected to."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import oracledb
import pytds
import pytest

from ingest.config import load
from ingest.config.entries import Database
from ingest.errors import IngestError
from ingest.source import database, sqlserver
from ingest.source.snapshot import described, source_of
from tests.source import pretend
from tests.source.far import BINS, Shop


def test_columns_without_a_text_are_refused_or_left_out(shop: Shop) -> None:
    """A value that cannot be read must not land as NULL."""
    shop.fill(3)
    odd = (
        ("ODD", "ANYDATA", "1", None, None, None, None, "NO", None)
        if shop.oracle
        else ("ODD", "sql_variant", 1, 0, 0, None, False, 1)
    )
    shop.server.columns.append(odd)
    with pytest.raises(
        IngestError, match=r"A value of \w+, as in 'ODD' of .* cannot be read: leave the column out"
    ):
        shop.read()
    with shop.file.open("a", encoding="utf-8") as file:
        file.write("tables:\n  - {match: SHOP.APP.BINS, columns: {ODD: exclude}}\n")
    assert 4 == shop.read().rows
    assert "ODD" not in shop.images()[0]


def test_a_generated_column_is_read_if_the_stream_has_it(shop: Shop) -> None:
    """Streams leave such columns out: a value that was read once would stay although the row changes."""
    pipeline = load(shop.file)
    source = source_of(pipeline)
    assert source.database
    with database.connected(source.database) as (dialect, connection):
        table = dialect.table(connection, BINS)
    assert table
    columns = (*table.columns, database.SourceColumn("SUM", "NUMBER", "decimal", '"SUM"', generated=True))
    table = database.SourceTable(BINS, table.name, columns, table.keys)

    def read(streamed: dict[str, str]) -> bool:
        found = described(table, pipeline, BINS, source, streamed)
        assert found.shape == table.shape
        return "SUM" in [one.name for one in found.columns]

    assert [True, False, True] == [
        read({}),
        read({"ID": "unknown"}),
        read({"ID": "unknown", "SUM": "unknown"}),
    ]


def test_an_older_server_says_what_it_cannot_compare(shop: Shop) -> None:
    """Texts before UTF-8 would differ in every row that is not English."""
    shop.fill(20)
    if shop.oracle:
        assert isinstance(shop.server, pretend.Oracle)
        shop.server.is_old, shop.server.charset = True, "ZHS16GBK"
        shop.server.columns.append(("LONGER", "VARCHAR2", "4000", None, None, "4000", "B", "NO"))
        shop.server.columns = [(*one[:8], None) for one in shop.server.columns]
        shop.write(
            "ALTER TABLE SHOP.APP.BINS ADD COLUMN LONGER VARCHAR",
            "CREATE OR REPLACE VIEW APP.BINS AS FROM SHOP.APP.BINS",
        )
    else:
        shop.server.columns = [(*one[:7], None) for one in shop.server.columns]
    shop.mirror()
    if not shop.oracle:
        assert ("NAME",) == shop.compare().left_out
        return
    assert [] == shop.compare().differences
    with database.connected(source_of(load(shop.file)).database) as (dialect, connection):  # type: ignore[arg-type]
        table = dialect.table(connection, BINS)
    assert {"NAME": True, "LONGER": False} == {
        one.name: one.comparable for one in table.columns if one.declared.startswith("VARCHAR2")
    }  # type: ignore[union-attr]


def test_a_refused_connection_is_a_sentence_without_the_password(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password in a log is a password lost."""
    error: Exception = pytds.LoginError("Login failed for user 'reader' with hunter2-x.\n")
    if shop.oracle:
        error = oracledb.DatabaseError(
            pretend.Fault(1017, "ORA-01017: invalid credential hunter2-x\nHelp: see")
        )

    def refuse(**_given: Any) -> None:
        raise error

    monkeypatch.setattr(oracledb if shop.oracle else pytds, "connect", refuse)
    monkeypatch.setattr(database, "_silent", lambda _url: "")
    with pytest.raises(
        IngestError, match=r"The database at db:(1521|1433) does not let user 'reader' in"
    ) as caught:
        shop.read()
    assert "hunter2-x" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["oracle", "sqlserver"])
def test_a_server_of_another_kind_is_a_sentence(scheme: str) -> None:
    """A wrong port is the commonest mistake; a traceback says nothing of what to correct."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as one:
                        one.recv(4096)
                        one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/SHOP"
        shop = Database(url=url, user="reader", password="hunter2-x")
        wanted = r"does not let user 'reader' in: [^.]"
        with pytest.raises(IngestError, match=wanted) as caught, database.connected(shop):
            pass
        assert "hunter2-x" not in str(caught.value)


def test_doctor_names_the_table_that_cannot_be_read(shop: Shop) -> None:
    """A right that is missing would be found in the middle of the night."""
    from ingest.operate.doctor import examine

    def found() -> tuple[str, str]:
        one = next(one for one in examine(load(shop.file)) if one.check == "database of shop")
        return one.state, one.found

    port = 1521 if shop.oracle else 1433
    assert ("ok", f"db:{port} lets reader in, and its clock is 2024-05-01T00:00:00") == (
        found()[0],
        found()[1].partition(".")[0],
    )
    shop.mirror()
    shop.server.columns = []
    shown = (
        "The database shows user 'reader' no table SHOP.APP.BINS: look at its name, and grant SELECT on it."
    )
    assert ("wrong", f"db:{port} lets reader in, but: {shown}") == found()


def test_the_session_is_in_utc_and_loses_nothing(shop: Shop) -> None:
    """Settings of the server or of the user's profile would change the texts."""
    shop.fill(1)
    shop.read()
    said = " ".join(shop.server.asked[:2])
    for one in (
        ("TIME_ZONE = '+00:00'", "NLS_NUMERIC_CHARACTERS = '.,'", "NLS_SORT = 'BINARY'")
        if shop.oracle
        else ("TEXTSIZE 2147483647", "CONCAT_NULL_YIELDS_NULL ON")
    ):
        assert one in said
    given = shop.server.given
    assert ("reader", "hunter2-x") == (given["user"], given["password"])
    assert (
        ("SHOP", 1521) == (given["service_name"], given["port"])
        if shop.oracle
        else ("SHOP", None) == (given["database"], given["cafile"])
    )


def test_tls_is_asked_for_unless_it_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password would go over the network for all to read."""
    server = pretend.SQLServer()
    monkeypatch.setattr(pytds, "connect", server.connect)
    for url, wanted in (
        ("sqlserver://db/s", True),
        ("sqlserver://db/s?encrypt=no", False),
        ("sqlserver://db/s?cafile=/etc/a.pem", "/etc/a.pem"),
    ):
        sqlserver.connect(urlsplit(url), "reader", "x")
        assert wanted == (server.given["cafile"] if isinstance(wanted, str) else bool(server.given["cafile"]))


@pytest.mark.parametrize(
    ("names", "common", "host", "wanted"),
    [
        (["db.shop.example"], "other", "db.shop.example", True),
        (["*.shop.example"], "other", "DB.shop.example", True),
        (["*.shop.example"], "db", "a.db.shop.example", False),
        (["else.example"], "db.shop.example", "db.shop.example", False),
        ([], "db.shop.example", "db.shop.example", True),
        ([], "x", "db.shop.example", False),
    ],
)
def test_a_certificate_is_of_the_host(names: list[str], common: str, host: str, wanted: bool) -> None:
    """Any certificate would be accepted."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from OpenSSL import crypto

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])
    day = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(day).not_valid_after(day + dt.timedelta(1))
    if names:
        made = made.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False
        )
    signed = crypto.X509.from_cryptography(made.sign(key, hashes.SHA256()))
    assert wanted == sqlserver._is_of_host(signed, host.encode())


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("oracle://db:1521/SHOP", True), ("oracle://db:1521/SHOP?protocol=tcps", True), ("oracle://db:1521", False),
        ("sqlserver://db/shop?cafile=/etc/a.pem", True), ("sqlserver://db:1433/", False), ("jdbc:oracle:thin:@db", False),
    ],
)  # fmt: skip
def test_a_url_names_its_database(url: str, good: bool) -> None:
    """Without one a client connects to what the server thinks of."""
    from ingest.config import scalars

    if good:
        assert url == scalars.database(url)
        return
    with pytest.raises(ValueError, match="oracle://host:1521/service"):
        scalars.database(url)
