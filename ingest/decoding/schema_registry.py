"""Schemas of framed Avro from a schema registry with Confluent's interface.

``GET /schemas/ids/<id>`` gives one schema's text; a schema that refers to others names them by subject
and version, and they are written into it where they are first used, so that the result needs nothing else.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import cache, lru_cache
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

import msgspec

from ingest.decoding import avro
from ingest.decoding.schema_folder import is_folder, schemas
from ingest.errors import SetupError

TIMEOUT = 10.0  # seconds
MAX_BYTES = 16 * 1024 * 1024
MAX_REFERENCES = 200


def client(url: str, timeout: float = TIMEOUT) -> Callable[[int], str]:
    """A function from a schema's id to its JSON text that asks the registry once for each id, or reads its folder once."""
    if is_folder(url):
        return _folder_client(url)

    @lru_cache(maxsize=4096)
    def schema(schema_id: int) -> str:
        return fetch(url, schema_id, timeout)

    return schema


def _folder_client(folder: str) -> Callable[[int], str]:
    read = cache(lambda: schemas(folder))

    def schema(number: int) -> str:
        texts = read()
        if texts.faults and number not in texts and number not in texts.unsure:
            raise SetupError(texts.faults[0])
        return texts[number]

    return schema


def fetch(url: str, schema_id: int, timeout: float = TIMEOUT) -> str:
    """One schema's JSON text, its references written into it; of one that is not Avro a text that `avro.load` refuses.

    Raises:
        KeyError: the registry does not know the id.
        SetupError: the registry cannot be asked, or answers something else.
    """
    answer = _get(url, f"/schemas/ids/{schema_id}", timeout)
    if answer is None:
        raise KeyError(schema_id)
    if not answer.below:
        return answer.text
    definitions: dict[str, Any] = {}
    _collect(url, answer.below, timeout, definitions)
    try:
        return json.dumps(_inlined(_tree(answer.text, url), "", definitions))
    except RecursionError:
        raise SetupError(f"a schema of the registry {_shown(url)} is nested too deeply") from None


class _Reference(msgspec.Struct, frozen=True):
    """Where a schema refers to another one."""

    name: str
    subject: str
    version: int | str


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    """A schema as the registry gives it."""

    schema: str
    schema_type: str = "AVRO"
    references: list[_Reference] | None = None

    @property
    def text(self) -> str:
        """The schema; of one that is not Avro a text that `avro.load` refuses."""
        kind = self.schema_type
        return self.schema if kind == "AVRO" else avro.of_other_kind(_printable(kind))

    @property
    def below(self) -> list[_Reference]:
        """The schemas that belong into it."""
        return self.references or [] if self.schema_type == "AVRO" else []


def _collect(url: str, references: list[_Reference], timeout: float, collected: dict[str, Any]) -> None:
    for name, subject, version in map(msgspec.structs.astuple, references):
        if name in collected:
            continue
        if len(collected) >= MAX_REFERENCES:
            raise SetupError(
                f"a schema of the registry {_shown(url)} refers to more than {MAX_REFERENCES} others"
            )
        answer = _get(
            url, f"/subjects/{quote(subject, safe='')}/versions/{quote(str(version), safe='')}", timeout
        )
        if answer is None:
            raise SetupError(
                f"the registry {_shown(url)} lacks {subject} version {version}, which a schema refers to"
            )
        collected[name] = _tree(answer.text, url)
        _collect(url, answer.below, timeout, collected)


def _inlined(schema: Any, namespace: str, definitions: dict[str, Any]) -> Any:
    """The schema with each referenced definition at its first use; ``definitions`` shrinks meanwhile."""
    if isinstance(schema, str):
        full = schema if schema in definitions else f"{namespace}.{schema}"
        return _inlined(definitions.pop(full), "", definitions) if full in definitions else schema
    if isinstance(schema, list):
        return [_inlined(branch, namespace, definitions) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    inner = str(schema.get("namespace", str(schema.get("name", "")).rpartition(".")[0] or namespace))
    done = dict(schema)
    for member in ("type", "items", "values"):
        if member in done:
            done[member] = _inlined(done[member], inner, definitions)
    if isinstance(done.get("fields"), list):
        done["fields"] = [_inlined(each, inner, definitions) for each in done["fields"]]
    return done


def _tree(text: str, url: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SetupError(f"a schema of the registry {_shown(url)} is not JSON") from None


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows redirects on the registry's own server: another one would get the password, and give schemas."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The next request, or None, which makes the redirect an error."""
        if urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _get(url: str, path: str, timeout: float) -> _Answer | None:
    """The answer to one request, or None for 404."""
    request = _request(url, path)
    try:
        data = _within(timeout, lambda: _read(request, timeout))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise SetupError(f"the registry {_shown(url)} {_refusal(error)}") from None
    except http.client.HTTPException as error:
        raise SetupError(
            f"the registry {_shown(url)} does not speak HTTP ({_printable(error)}); check the source's registry: address, "
            "its port, and whether it begins with https://"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", None) or error
        raise SetupError(
            f"the registry {_shown(url)} gave no answer ({_printable(reason)}); check the source's registry: address"
        ) from None
    if len(data) > MAX_BYTES:
        raise SetupError(f"the registry {_shown(url)} answered more than {MAX_BYTES >> 20} MB")
    try:
        return msgspec.json.decode(data, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SetupError(
            f"the registry {_shown(url)} answered something else than a schema ({_printable(error)}); check the source's "
            "registry: address"
        ) from None


def _refusal(error: urllib.error.HTTPError) -> str:
    """What a registry answered instead of a schema."""
    if error.code not in (301, 302, 303, 307, 308):
        return f"answered {error.code} {_printable(error.reason)}"
    target = urljoin(error.filename or "", error.headers["Location"] or "")
    if urlsplit(target)[:2] == urlsplit(error.filename or "")[:2]:
        return "redirects to itself; check the source's registry: address"
    return (
        f"redirects to another server ({_shown(target)}), "
        "which is not followed; write that address as the source's registry: if it is right"
    )


def _printable(given: object) -> str:
    """What a server said, in one line that drives no terminal."""
    text = "".join(char if char.isprintable() else "?" for char in str(given).strip())
    return text[:200]


def _read(request: urllib.request.Request, timeout: float) -> bytes:
    opener = urllib.request.build_opener(_SameOrigin())
    with opener.open(request, timeout=timeout) as response:
        return bytes(response.read(MAX_BYTES + 1))


def _within(seconds: float, work: Callable[[], bytes]) -> bytes:
    """The result within a time, all of it, else a `TimeoutError`: a socket's own limit begins again with each byte."""
    done: SimpleQueue[bytes | Exception] = SimpleQueue()

    def attempt() -> None:
        try:
            done.put(work())
        except Exception as error:
            done.put(error)

    threading.Thread(target=attempt, daemon=True).start()
    try:
        answer = done.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"it takes more than {seconds:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _request(url: str, path: str) -> urllib.request.Request:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise SetupError(f"the registry address {_shown(url)} must start with http:// or https://")
    address = urlunsplit(
        (parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/") + path, "", "")
    )
    request = urllib.request.Request(address, headers={"Accept": "application/json"})  # noqa: S310 - http only
    if parts.username:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        request.add_header("Authorization", "Basic " + base64.b64encode(secret).decode())
    return request


def _shown(url: str) -> str:
    """The address without the user's name and password."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
