"""The schema registry's client against a stub on the loopback."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from ingest.decoding import avro, schema_registry
from ingest.errors import SetupError, Undecodable
from tests.timing import PATIENCE

ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "one", "type": "Item"}, {"name": "two", "type": ["null", "shop.Item"]}],
}
ANSWERS = {
    "/schemas/ids/1": (200, {"schema": json.dumps(ITEM)}),
    "/schemas/ids/2": (
        200,
        {
            "schema": json.dumps(ORDER),
            "references": [{"name": "shop.Item", "subject": "item/value", "version": 3}],
        },
    ),
    "/subjects/item%2Fvalue/versions/3": (200, {"schema": json.dumps(ITEM)}),
    "/schemas/ids/4": (200, {"schema": "syntax = ...", "schemaType": "PROTOBUF"}),
    "/schemas/ids/5": (500, {"message": "broken"}),
    "/schemas/ids/6": (200, ["unexpected"]),
    "/schemas/ids/7": (
        200,
        {"schema": json.dumps(ORDER), "references": [{"name": "x", "subject": "gone", "version": 1}]},
    ),
}


class Stub(BaseHTTPRequestHandler):
    """Answers from the table above, and notes what was asked."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self):
        """One request."""
        Stub.asked.append((self.path, self.headers.get("Authorization")))
        status, answer = ANSWERS.get(self.path, (404, {"error_code": 40403}))
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        """Keep the test's output quiet."""


@pytest.fixture
def port():
    """A running stub's port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    Stub.asked.clear()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_fetches_once(port):
    """A registry asked for every message is the slowest part of the run."""
    schema = schema_registry.client(f"http://127.0.0.1:{port}/")
    assert ITEM == json.loads(schema(1)) == json.loads(schema(1))
    assert [("/schemas/ids/1", None)] == Stub.asked


def test_sends_name_and_password_and_never_shows_them(port):
    """A password in an error message ends up in every log."""
    schema_registry.fetch(f"http://me:pa%40ss@127.0.0.1:{port}", 1)
    assert [("/schemas/ids/1", "Basic bWU6cGFAc3M=")] == Stub.asked
    with pytest.raises(SetupError) as error:
        schema_registry.fetch(f"http://me:pa%40ss@127.0.0.1:{port}", 5)
    assert "ss@" not in str(error.value)


def test_writes_references_into_the_schema(port):
    """A schema that refers to another cannot be read alone."""
    text = schema_registry.fetch(f"http://127.0.0.1:{port}", 2)
    assert {"one": {"id": 1}, "two": {"id": 2}} == avro.read(avro.load(text), b"\x02\x02\x04")


def test_unknown_id(port):
    """An id that the registry lacks is the message's fault, not the set-up's."""
    with pytest.raises(KeyError):
        schema_registry.fetch(f"http://127.0.0.1:{port}", 3)


def test_a_schema_of_another_kind_is_the_messages_fault(port):
    """A number in a key of eight bytes, or in a foreign message, may be that of a schema of Protobuf: no run may end by it."""
    text = schema_registry.fetch(f"http://127.0.0.1:{port}", 4)
    with pytest.raises(Undecodable, match="it is a PROTOBUF schema, and only Avro is read") as refused:
        avro.load(text)
    assert "bad-schema" == refused.value.code


@pytest.mark.parametrize(
    ("number", "why"), [(5, "answered 500"), (6, "something else than a schema"), (7, "lacks gone")]
)
def test_odd_answers_are_explained(port, number, why):
    """A registry that answers something else needs the operator, who must see what it answered."""
    with pytest.raises(SetupError, match=why):
        schema_registry.fetch(f"http://127.0.0.1:{port}", number)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "127.0.0.1:9"])
def test_only_http(url):
    """An address of another scheme would read files of the machine."""
    with pytest.raises(SetupError, match="http"):
        schema_registry.fetch(url, 1)


def test_an_address_without_a_registry():
    """A closed port must not hang the run or show a traceback."""
    with pytest.raises(SetupError, match="gave no answer"):
        schema_registry.fetch("http://127.0.0.1:9", 1, timeout=2)


class Elsewhere(Stub):
    """Another server, to which the registry sends its callers."""

    def do_GET(self):
        """Note what came along."""
        Stub.asked.append((f"elsewhere {self.path}", self.headers.get("Authorization")))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"schema": '"long"'}).encode())


class Redirecting(Stub):
    """Sends its callers on."""

    to = ""

    def do_GET(self):
        """Schema 8 is at another path of this server, all others on the other one."""
        Stub.asked.append((self.path, self.headers.get("Authorization")))
        if self.path == "/moved":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": '"long"'}).encode())
            return
        self.send_response(302)
        self.send_header("Location", "/moved" if self.path.endswith("/8") else Redirecting.to)
        self.end_headers()


class Dripping(Stub):
    """Sends a byte now and then, for ever."""

    def do_GET(self):
        """One byte each tenth of a second: no single read ever times out."""
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(1200):  # two minutes, after which it is an answer
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.1)


@pytest.fixture
def servers():
    """Starts stubs and stops them."""
    started = []

    def start(handler):
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        started.append(server)
        return server.server_port

    Stub.asked.clear()
    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_redirects_to_another_server_are_not_followed(servers):
    """The other server would be given the password, and its answer be taken for the schema."""
    Redirecting.to = f"http://127.0.0.1:{servers(Elsewhere)}/internal/metadata"
    port = servers(Redirecting)
    with pytest.raises(SetupError, match="redirects to another server") as error:
        schema_registry.fetch(f"http://me:REGPASS@127.0.0.1:{port}", 1)
    assert "REGPASS" not in str(error.value)
    assert ["/schemas/ids/1"] == [path for path, _ in Stub.asked]


def test_redirects_on_the_same_server_are_followed(servers):
    """A registry beneath a proxy that tidies paths would be unusable."""
    assert '"long"' == schema_registry.fetch(f"http://me:x@127.0.0.1:{servers(Redirecting)}", 8)
    assert ["/schemas/ids/8", "/moved"] == [path for path, _ in Stub.asked]


def test_an_answer_that_drips_ends_in_time(servers):
    """A run would be held for hours by a server that sends a byte a second."""
    with pytest.raises(SetupError, match="gave no answer"):
        schema_registry.fetch(f"http://127.0.0.1:{servers(Dripping)}", 1, timeout=0.5)


def _ok(body: object) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def _reference(**changed: object) -> bytes:
    given = {"name": "a", "subject": "b", "version": 1} | changed
    return _ok({"schema": '"int"', "references": [given]})


_DEEP = '{"type": "array", "items": ' * 3000 + '"int"' + "}" * 3000


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (bytes.fromhex("15030100020246"), r"does not speak HTTP \(.*\); check .* whether it begins with https://"),
        (b"", "does not speak HTTP|gave no answer"),
        (b"\0\0\0\x2a\0\0\0\0" * 3, "does not speak HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}", "something else than a schema"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 503 \x1b[2Jgone\r\nContent-Length: 0\r\n\r\n", "answered 503 .*gone"),
        (b"HTTP/1.1 302 Found\r\nLocation: /schemas/ids/1\r\nContent-Length: 0\r\n\r\n", "redirects to itself"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "redirects to itself|answered 302"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n", "redirects|gave no answer"),
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "redirects|answered 302"),
        (_ok(b"<html>sign in</html>"), "something else than a schema"),
        (_ok(b"\xff\xfe"), "something else than a schema"),
        (_ok(b"[" * 100_000), "something else than a schema"),
        (_ok(b" " * (17 << 20)), "more than 16 MB"),
        (_ok(5), "something else than a schema"),
        (_ok({"schema": 5}), "something else than a schema"),
        (_ok({"schema": "{", "references": [{"name": "a", "subject": "b", "version": 1}]}), "is not JSON|something else than a schema"),
        (_ok({"schema": '"int"', "references": 5}), "something else than a schema"),
        (_ok({"schema": '"int"', "references": {"a": 1}}), "something else than a schema"),
        (_ok({"schema": '"int"', "references": [5]}), "something else than a schema"),
        (_reference(name=["x"]), "something else than a schema"),
        (_reference(subject=None), "something else than a schema"),
        (_reference(version={}), "something else than a schema"),
        (_ok({"schema": _DEEP, "references": [{"name": "a", "subject": "b", "version": 1}]}), "nested too deeply|not JSON"),
        (_ok({"schema": '"int"', "schemaType": ["\x1b[2J"]}), "something else than a schema"),
    ],
)  # fmt: skip
def test_whatever_a_server_answers_is_a_sentence(answer: bytes, why: str) -> None:
    """The common slip is http:// at a port of TLS or of the broker: it ended the run of all other sources."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SetupError, match=why) as error:
            schema_registry.fetch(url, 1, PATIENCE)
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500
