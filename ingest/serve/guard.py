"""Who may ask, and from where: tokens and sessions, the names of this service, forms that are sent once.

A browser carries its user's cookies to whatever page asks, so a request that changes something must show what only
our own pages know; and a name that resolves to this machine must not make another site's scripts our pages.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

from ingest.errors import SetupError

COOKIE = "ingest"
TOKEN = "INGEST_SERVE_TOKEN"  # noqa: S105 - a variable's name
SHORTEST = 16  # characters of a token
SESSION = 12 * 3600.0  # seconds
FORM = 12 * 3600.0  # seconds for which a page's forms may be sent
SESSIONS = 10_000
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service listens."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Address:
        """An address from ``host:port``, ``[::1]:port`` or a bare port, else a `ValueError`."""
        host, _, port = text.rpartition(":")
        if not port.isdecimal() or not 0 <= int(port) < 65536:
            raise ValueError(f"{text!r} is not an address; write for example 127.0.0.1:8765")
        return cls(host.strip("[]") or "127.0.0.1", int(port))

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def tokens(file: Path | None, account: str) -> dict[str, str]:
    """Every token with its user's name, from a file with a token or ``name token`` a line, or from the environment.

    Raises:
        SetupError: the file cannot be read, others may read it, or a token is too short.
    """
    users: dict[str, str] = {}
    lines = [os.environ[TOKEN]] if os.environ.get(TOKEN) else []
    if file is not None:
        try:
            if file.stat().st_mode & 0o077:
                raise SetupError(f"{file} holds tokens and others may read it: chmod 600 {file}.")
            lines += file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(
                f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}."
            ) from None
    for line in lines:
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) > 2 or len(words[-1]) < SHORTEST:
            raise SetupError(
                f"A token for `ingest serve` has at least {SHORTEST} characters, and at most its user's name before "
                "it: make one with `openssl rand -hex 24`."
            )
        users[words[-1]] = words[0] if len(words) == 2 else account
    return users


@dataclass(slots=True)
class AccessGuard:
    """Decides about requests by their headers. Without tokens everyone on this machine is ``account``."""

    address: Address
    account: str
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    names: frozenset[str] = frozenset()  # further names under which the service is known
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _sessions: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict, repr=False)

    def knows(self, host: str) -> bool:
        """True if a request's ``Host`` is a name of this service: any other name may be another site's."""
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]").lower()
        if name in self.names or name == self.address.host.lower():
            return True
        if not self.address.is_loopback and not self.names:
            return bool(self.tokens)
        return name in ("localhost", "127.0.0.1", "::1")

    def user(self, headers: Mapping[str, str]) -> str | None:
        """Whose request it is; None if that must be said first."""
        if not self.tokens:
            return self.account
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.user_of(given.strip())
        name, until = self._sessions.get(_cookie(headers.get("cookie", "")), (None, 0.0))
        return name if time.monotonic() < until else None

    def user_of(self, token: str) -> str | None:
        """The user of a token, compared with every one in the same time."""
        user = None
        for expected, name in self.tokens.items():
            if hmac.compare_digest(expected.encode(), token.encode("utf-8", "replace")):
                user = name
        return user

    def opened(self, user: str, headers: Mapping[str, str]) -> str:
        """A new session, as the value of a ``Set-Cookie`` header; with TLS it is sent over nothing else."""
        name = secrets.token_urlsafe(32)
        self._sessions[name] = user, time.monotonic() + SESSION
        while len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        secure = "; Secure" if _is_behind_tls(headers) else ""
        return f"{COOKIE}={name}; Path=/; HttpOnly; SameSite=Strict; Max-Age={SESSION:.0f}{secure}"

    def closed(self, headers: Mapping[str, str]) -> str:
        """End a session; the value of a ``Set-Cookie`` header."""
        self._sessions.pop(_cookie(headers.get("cookie", "")), None)
        return f"{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"

    def is_ours(self, headers: Mapping[str, str]) -> bool:
        """True if no other site's page sent a request, as far as the browser says."""
        if (origin := headers.get("origin")) is not None:
            return origin.partition("://")[2].lower() == headers.get("host", "").lower()
        if (site := headers.get("sec-fetch-site")) is not None:
            return site in ("same-origin", "none")
        referer = headers.get("referer", "")  # of a browser that sends neither
        return not referer or urlsplit(referer).netloc.lower() == headers.get("host", "").lower()

    def form(self, user: str) -> str:
        """What a page's forms must carry: a number used once, sealed for the user."""
        text = f"{int(time.time()):x}.{secrets.token_hex(8)}"
        return f"{text}.{self._sealed(user, text)}"

    def is_form(self, user: str, given: str) -> bool:
        """True if a form was made here for this user, and not too long ago."""
        text, _, seal = given.rpartition(".")
        if not text or not hmac.compare_digest(
            self._sealed(user, text).encode(), seal.encode("utf-8", "replace")
        ):
            return False
        return time.time() - int(text.partition(".")[0], 16) < FORM

    def _sealed(self, user: str, text: str) -> str:
        return hmac.new(self._secret, f"{user}\n{text}".encode(), hashlib.sha256).hexdigest()


def _is_behind_tls(headers: Mapping[str, str]) -> bool:
    """True if the browser asked with TLS, as its form's origin or the proxy says."""
    return (
        headers.get("origin", "").startswith("https://")
        or headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https"
    )


def _cookie(header: str) -> str:
    try:
        cookie = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def names(given: Iterable[str]) -> frozenset[str]:
    """Further names of the service, as they are compared."""
    return frozenset(name.strip().lower() for name in given if name.strip())
