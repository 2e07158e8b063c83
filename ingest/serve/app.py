"""The service as a web application: addresses to pages, the JSON API, metrics, and what every answer carries."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import jinja2
import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingest.errors import ConfigError, IngestError
from ingest.gold import approval
from ingest.inspect import prom, status
from ingest.inspect.exact_json import encoded
from ingest.ledgers import rejects
from ingest.quality import report
from ingest.serve import pages
from ingest.serve.background import JobRunner
from ingest.serve.fleet import LIGHTS, Fleet, NotHereError
from ingest.serve.guard import HEADERS, AccessGuard
from ingest.serve.jobs import ServiceJob
from ingest.serve.pages import View, link
from ingest.store import faults

LONGEST = 64 * 1024  # bytes of a form or a document
PATIENCE = 10.0  # seconds for a body to come
_OPEN = ("/healthz", "/login", "/style.css", "/live.js", "/favicon.ico")  # need no user
_WORK = ("/api/", "/sql", "/row", "/metrics")  # run a query for whoever opens them
_FORM = f"form-{secrets.token_hex(16)}"  # replaced by a page's number until it is sent
_NOTHING_ASKED = {"q": "", "show": "", "page": ""}
_slow = CapacityLimiter(8)  # threads that wait for queries and stories


Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class Service:
    """What the application serves."""

    fleet: Fleet
    guard: AccessGuard
    work: JobRunner | None = None  # None only looks


def application(service: Service) -> ASGIApp:
    """The application with its guard in front."""
    starlette = Starlette(
        routes=[
            *(Route(f"/{name}", partial(_page, service, name)) for name in pages.PAGES),
            Route("/row", partial(_row, service)),
            *(Route(f"/api/{name}", partial(_api, service, make)) for name, make in _API.items()),
            Route("/act", partial(_act, service), methods=["POST"]),
            Route("/job", partial(_job, service)),
            Route("/api/act", partial(_api_act, service), methods=["POST"]),
            Route("/api/job", partial(_api_job, service)),
            Route("/metrics", partial(_metrics, service)),
            Route("/healthz", _healthz),
            Route("/login", partial(_login, service), methods=["GET", "POST"]),
            Route("/logout", partial(_logout, service), methods=["POST"]),
            Route(
                "/style.css", _file("text/css", "quality/templates/report.css", "serve/templates/serve.css")
            ),
            Route("/live.js", _file("text/javascript", "serve/templates/live.js")),
            Route("/favicon.ico", _file("image/svg+xml", "serve/templates/icon.svg")),
        ],
        exception_handlers={
            HTTPException: partial(_refused, service),
            IngestError: partial(_refused, service),
        },
    )
    return Front(starlette, service.guard)


def _turned_away(path: str, text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """One sentence; for scripts, as a JSON object."""
    if path.startswith("/api/"):
        return Response(encoded({"error": text}), status, headers, "application/json")
    return PlainTextResponse(text, status, headers)


class Front:
    """Looks at every request before the application does: its host, its user, its origin, its size."""

    def __init__(self, app: ASGIApp, guard: AccessGuard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        is_begun = False

        async def answer(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        try:
            await (refusal or self._app)(scope, receive, answer)
        except asyncio.CancelledError:  # the service ends
            if is_begun:
                while (await receive())["type"] != "http.disconnect":
                    pass
            else:
                text = "The service was stopped before this was answered: ask again when it runs."
                await _turned_away(scope["path"], text, 503)(scope, receive, answer)

    @staticmethod
    def _is_link_to_a_page(path: str, headers: Mapping[str, str]) -> bool:
        """True if a user followed another site's link to a page that runs nothing."""
        opens = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return opens and not path.startswith(_WORK)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Request(scope).headers
        path = scope["path"]
        if path == "/healthz":
            return None
        if not self._guard.knows(headers.get("host", "")):
            text = "This service does not go by that name: start it with --allow-host NAME to let it."
            return _turned_away(path, text, 421)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LONGEST:
            return _turned_away(path, f"A request may have at most {LONGEST} bytes.", 413)
        if "transfer-encoding" in headers and "content-length" in headers:
            text = "A request has a Content-Length or a Transfer-Encoding, not both."  # a proxy may take the other one
            return _turned_away(path, text, 400, {"Connection": "close"})
        changes = scope["method"] not in ("GET", "HEAD")
        if not self._guard.is_ours(headers) and (changes or not self._is_link_to_a_page(path, headers)):
            text = "Another site's page sent this: nothing was done. Open the address from the browser's address bar."
            return _turned_away(path, text, 403)
        scope["user"] = user = self._guard.user(headers)
        return _to_log_in(scope, headers) if user is None and path not in _OPEN else None


def _to_log_in(scope: Scope, headers: Mapping[str, str]) -> Response:
    """The answer to a request without a known user: a program gets a sentence, a browser the page to log in."""
    path = scope["path"]
    if path.startswith("/api/") or path == "/metrics" or "authorization" in headers:
        text = "Give a valid token: Authorization: Bearer TOKEN."
        return _turned_away(path, text, 401, {"WWW-Authenticate": "Bearer"})
    asked = f"{path}?{scope['query_string'].decode('latin-1')}".rstrip("?")
    return RedirectResponse(link("login", to=asked if asked != "/" else ""), 303)


# --- pages ---


async def _page(service: Service, name: str, request: Request) -> Response:
    asked = dict(request.query_params)
    view = await _made(service, partial(pages.PAGES[name], service.fleet, asked), slow=name == "sql")
    return await _drawn(service, request, view)


async def _row(service: Service, request: Request) -> Response:
    asked = parse_qs(request.url.query, keep_blank_values=True)
    return await _drawn(
        service, request, await _made(service, partial(pages.row, service.fleet, asked), slow=True)
    )


_thread = partial(to_thread.run_sync, abandon_on_cancel=True)


async def _made(service: Service, make: Callable[[], Any], *, slow: bool = False) -> Any:
    """What a function makes in a thread; once more if a file went away while it was read, as `maintain` lets it."""
    limiter = _slow if slow else None

    def made() -> Any:
        with service.fleet.one_look():
            return make()

    again = True
    while True:
        try:
            return await _thread(made, limiter=limiter)
        except IngestError:
            raise
        except Exception as error:
            if not again:
                text = f"The lake cannot be read right now ({faults.said(error)}). If it is being written, try again."
                raise HTTPException(503, text) from error
        again = False
        await asyncio.sleep(0.2)


async def _drawn(service: Service, request: Request, view: View) -> Response:
    """A page as HTML; nothing if the browser has the same one."""
    text = await _thread(partial(_html, service, request, view))
    mark = f'"{hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]}"'
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers={"ETag": mark})
    text = text.replace(_FORM, service.guard.form(request.scope.get("user") or ""))
    return Response(text.encode("utf-8", "replace"), view.code, {"ETag": mark}, "text/html")


def _html(service: Service, request: Request, view: View) -> str:
    facts = {
        "view": view, "asked": _NOTHING_ASKED | dict(request.query_params), "user": request.scope.get("user") or "",
        "signed_in": bool(service.guard.tokens and request.scope.get("user")), "form": _FORM, "here": request.url.path,
        "pipeline": "", "work": service.work,
    }  # fmt: skip
    return _templates().get_template(view.template).render(facts | view.facts).translate(report.UNSEEN)


def _templates() -> jinja2.Environment:
    environment = report.environment("ingest.serve")
    environment.globals.update(link=link, shown=_shown, LIGHTS=LIGHTS)
    return environment


def compile_templates() -> None:
    """Compile the pages' templates, which the first look at each would wait for."""
    for name in _templates().list_templates(["j2"]):
        _templates().get_template(name)


def _shown(cell: object) -> str:
    """A cell of a query, as people read it."""
    if isinstance(cell, msgspec.Raw):
        return bytes(cell).decode()
    return cell if isinstance(cell, str) else encoded(cell).decode()


async def _refused(service: Service, request: Request, error: Exception) -> Response:
    """Why there is no answer, in a sentence."""
    code, text = 404 if isinstance(error, NotHereError) else 400, str(error)
    if isinstance(error, pages.BusyError):
        code = 503
    elif isinstance(error, HTTPException):
        code = error.status_code
        usual = {404: "There is no such page.", 405: "This address does not take that."}
        text = usual.get(code, str(error.detail))
    if request.url.path.startswith("/api/"):
        return _turned_away(request.url.path, text, code)
    return await _drawn(
        service, request, View("message.html.j2", "Not here", {"text": text}, live=0, code=code)
    )


def _file(kind: str, *parts: str) -> Endpoint:
    """The address of a file of the service's own, made of one or several."""
    root = Path(__file__).parent.parent
    data = b"\n".join((root / part).read_bytes() for part in parts)

    async def answer(_request: Request) -> Response:
        return Response(data, media_type=kind, headers={"Cache-Control": "max-age=300"})

    return answer


# --- who asks ---


async def _login(service: Service, request: Request) -> Response:
    to = _own_address(request.query_params.get("to", ""))
    view = View("login.html.j2", "Sign in", {"to": to, "wrong": False}, live=0)
    if request.method == "GET":
        return await _drawn(service, request, view)
    user = service.guard.user_of(dict(await form_of(request)).get("token", "").strip())
    if user is None:
        await asyncio.sleep(0.5)  # slows down guessing
        view.facts["wrong"], view.code = True, 401
        return await _drawn(service, request, view)
    return RedirectResponse(to or "/", 303, {"Set-Cookie": service.guard.opened(user, request.headers)})


def _own_address(given: str) -> str:
    """An address of this service; nothing for one of another."""
    address = urlsplit(given)
    return given if given.startswith("/") and given[1:2] not in ("/", "\\") and not address.netloc else ""


async def _logout(service: Service, request: Request) -> Response:
    return RedirectResponse("/login", 303, {"Set-Cookie": service.guard.closed(request.headers)})


async def body_of(request: Request) -> bytes:
    """A request's body, if it is small and comes soon.

    Raises:
        HTTPException: it is not.
    """
    data = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                data += part
                if len(data) > LONGEST:
                    raise HTTPException(413, f"A request may have at most {LONGEST} bytes.")
    except (TimeoutError, ClientDisconnect):
        raise HTTPException(408, "The request did not come to its end.") from None
    return bytes(data)


async def form_of(request: Request) -> list[tuple[str, str]]:
    """The fields of a form that was sent."""
    text = (await body_of(request)).decode("utf-8", "replace")
    return parse_qsl(text, keep_blank_values=True, max_num_fields=100)


# --- what users do ---


async def _act(service: Service, request: Request) -> Response:
    """A form of a page: ask for what it says, once, and show what becomes of it."""
    fields = dict(await form_of(request))
    user, form = request.scope["user"], fields.pop("form", "")
    if not service.guard.is_form(user, form):
        raise HTTPException(403, "This page is too old to act from: open it again. Nothing was done.")
    job = _asked_for(service, user, fields, f"{form} {sorted(fields.items())}")
    return RedirectResponse(link("job", id=job.id), 303)


def _asked_for(service: Service, user: str, fields: Mapping[str, str], key: str) -> ServiceJob:
    if service.work is None:
        raise HTTPException(403, "This service only looks (--no-run): type the command instead.")
    return service.work.ask(fields.get("do", ""), fields.get("pipeline", ""), fields, user, key)


def _known_job(service: Service, request: Request) -> ServiceJob:
    job = service.work.job(request.query_params.get("id", "")) if service.work else None
    if job is None:
        raise NotHereError(
            "There is no such action, or it was long ago: `runs` and `decisions` keep what was done."
        )
    return job


async def _job(service: Service, request: Request) -> Response:
    job = _known_job(service, request)
    facts = {"job": job, "pipeline": job.pipeline}
    return await _drawn(service, request, View("job.html.j2", job.typed, facts, live=0 if job.is_over else 1))


async def _api_act(service: Service, request: Request) -> Response:
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise HTTPException(415, "Send a JSON document (Content-Type: application/json).")
    try:
        fields = msgspec.json.decode(await body_of(request), type=dict[str, str])
    except msgspec.MsgspecError:
        raise HTTPException(
            400, "Send one JSON object of texts, such as do, pipeline and statement."
        ) from None
    key = request.headers.get("idempotency-key", "")
    user = request.scope["user"]
    job = _asked_for(service, user, fields, key and f"{user} {key} {sorted(fields.items())}")
    return Response(encoded(job.described()), 202, media_type="application/json")


async def _api_job(service: Service, request: Request) -> Response:
    return Response(encoded(_known_job(service, request).described()), media_type="application/json")


# --- scripts ---


def _api_status(fleet: Fleet, asked: Mapping[str, list[str]]) -> Any:
    if names := asked.get("pipeline"):
        return fleet.status(names[0])
    return [
        {
            "pipeline": state.name, "light": state.light, "state": state.word, "lag_seconds": state.lag, "batch": state.batch,
            "tables": len(state.tables), "not_ok": state.bad, "open_rejects": state.rejects,
            "pending_statements": state.statements, "failing_checks": state.failing,
            "complete_until": state.status.get("complete_until"),
            "complete_reason": state.status.get("complete_reason", ""), "last_run": state.status.get("last_run"),
            "troubles": [{"light": it.light, "text": it.text, "command": it.command} for it in state.troubles],
        }
        | (dict.fromkeys(_COUNTS) if state.being_read else {})
        for state in fleet.states(soon=not fleet.is_prepared)
    ]  # fmt: skip


_COUNTS = ("tables", "not_ok", "open_rejects", "pending_statements", "failing_checks")  # not known yet


def _first(asked: Mapping[str, list[str]], name: str) -> str:
    if not (values := asked.get(name)):
        raise ConfigError([f"{name}= is missing"])
    return values[0]


def _api_tables(fleet: Fleet, asked: Mapping[str, list[str]]) -> Any:
    name = _first(asked, "pipeline")
    return fleet.kept(name, "tables", fleet.lake(name), status.tables)


def _api_rejects(fleet: Fleet, asked: Mapping[str, list[str]]) -> Any:
    waiting = rejects.waiting(fleet.lake(_first(asked, "pipeline")), limit=1000)
    return [rejects.described(reject) for reject in waiting]


def _api_ddl(fleet: Fleet, asked: Mapping[str, list[str]]) -> Any:
    name = _first(asked, "pipeline")
    return [entry.described() for entry in fleet.kept(name, "ddl", fleet.lake(name), approval.listed)]


def _api_explain(fleet: Fleet, asked: Mapping[str, list[str]]) -> Any:
    return pages.explained(
        fleet.lake(_first(asked, "pipeline")), _first(asked, "table"), asked.get("key", [])
    )


def _api_sql(fleet: Fleet, asked: Mapping[str, list[str]]) -> Any:
    lake = fleet.lake(_first(asked, "pipeline"))
    return pages.queried(lake, _first(asked, "q"), asked.get("batch", [""])[0]).records


Asked = Callable[[Fleet, Mapping[str, list[str]]], Any]
_API: dict[str, Asked] = {
    "status": _api_status, "tables": _api_tables, "rejects": _api_rejects, "ddl": _api_ddl, "explain": _api_explain,
    "sql": _api_sql,
}  # fmt: skip


async def _api(service: Service, make: Asked, request: Request) -> Response:
    asked = parse_qs(request.url.query, keep_blank_values=True)
    answer = await _made(
        service, lambda: encoded(make(service.fleet, asked)), slow=make in (_api_explain, _api_sql)
    )
    return Response(answer, media_type="application/json")


async def _metrics(service: Service, request: Request) -> Response:
    answer = await _made(
        service, lambda: prom.text(*filter(None, (state.measured for state in service.fleet.states())))
    )
    return Response(answer, media_type="text/plain; version=0.0.4")


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok\n")
