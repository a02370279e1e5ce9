"""The page and its API: which address gives what. All of it behind `guard`.

Reads through `watcher`, acts through `actions`; writes nothing itself. What /api and /metrics answer is documented in
docs/page.md.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections.abc import Callable
from typing import Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from andrea_proxy import samples
from andrea_rundir import config, jsontext
from andrea_rundir.faults import Fault, Usage
from andrea_web import actions, charts, metrics, pages, stream
from andrea_web.drawing import draw
from andrea_web.figures import origin
from andrea_web.guard import Guard
from andrea_web.watcher import Watcher

SPARK_COLUMNS = 300
_ACTIONS = {"stop": actions.stop, "checkpoint": actions.checkpoint, "pivot": actions.pivot}


def make(watcher: Watcher, token: str) -> ASGIApp:
    """The whole application for one run."""
    site = _Site(watcher)
    routes: list[BaseRoute] = [
        Route("/", site.page),
        Route("/healthz", lambda request: PlainTextResponse("ok\n")),
        Route("/metrics", site.metrics),
        Route("/api/run", site.run),
        Route("/api/curve", site.curve),
        Route("/api/arms", site.arms),
        Route("/api/probes", site.probes),
        Route("/api/checkpoints", site.checkpoints),
        Route("/api/events", site.events),
        Route("/api/samples", site.samples),
        Route("/api/stream", site.stream),
        *(Route(f"/api/{name}", site.act(name), methods=["POST"]) for name in _ACTIONS),
        Mount("/static", StaticFiles(directory=pages.FOLDER / "static")),
    ]
    handlers: dict[Any, Any] = {Fault: _fault, Exception: _bug}
    return Guard(
        Starlette(routes=routes, exception_handlers=handlers), token, config.load(watcher.run.run_toml).run.id[:12]
    )


class _Site:
    """The endpoints; those without `async` run in threads."""

    def __init__(self, watcher: Watcher) -> None:
        self._run, self._watcher = watcher.run, watcher
        self._life = secrets.token_hex(4)

    def page(self, request: Request) -> Response:
        """The page, whole, also without scripts."""
        found = self._watcher.figures()
        if "fault" in found:
            return HTMLResponse(pages.render("fault.html", run=found, life=self._life), 503)
        audits = samples.read(self._run)
        stretch = self._watcher.curves.stretch(1, self._watcher.curves.last, SPARK_COLUMNS)
        text = pages.render(
            "page.html",
            **self._content(found),
            life=self._life,
            audits=audits,
            left=_chosen(request, "left", audits, -2),
            right=_chosen(request, "right", audits, -1),
            drawing=draw(stretch),
            lineage=origin(self._run),
            configuration=_read(self._run.run_toml.read_text),
            policy=_read(self._run.policy_toml.read_text),
        )
        return HTMLResponse(text)

    def metrics(self, request: Request) -> Response:
        """For Prometheus."""
        return Response(metrics.render(self._watcher.figures()), media_type="text/plain; version=0.0.4")

    def run(self, request: Request) -> Response:
        """Every figure of the header."""
        return _json(self._watcher.figures())

    def curve(self, request: Request) -> Response:
        """Loss and smoothed loss of some steps, thinned."""
        self._watcher.figures()
        return _json(charts.curve(self._watcher.curves, *_stretch(request, self._watcher.curves.last)))

    def arms(self, request: Request) -> Response:
        """Shares and losses of the arms over some steps, thinned."""
        self._watcher.figures()
        return _json(charts.arms(self._watcher.curves, *_stretch(request, self._watcher.curves.last)))

    def probes(self, request: Request) -> Response:
        """All probes and scores, and the marks: checkpoints, pivots, restarts, origin."""
        self._watcher.figures()
        return _json(charts.looks(self._run, self._watcher.curves, self._watcher.past, self._watcher.checkpoints()))

    def checkpoints(self, request: Request) -> Response:
        """Every checkpoint file."""
        self._watcher.figures()
        return _json({"schema": 1, "checkpoints": self._watcher.checkpoints()})

    def events(self, request: Request) -> Response:
        """The newest events but steps, newest first."""
        self._watcher.figures()
        return _json({"schema": 1, "events": list(self._watcher.past.newest)[::-1]})

    def samples(self, request: Request) -> Response:
        """`.samples.json`."""
        return _json({"schema": 1, "audits": samples.read(self._run)})

    async def stream(self, request: Request) -> Response:
        """Server-sent events: what has changed, as it changes."""

        async def look() -> dict[str, Any]:
            return await to_thread.run_sync(self._parts)

        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(stream.changes(look, self._life), media_type="text/event-stream", headers=headers)

    def act(self, name: str) -> Callable[[Request], Any]:
        """The endpoint of an action: JSON in, JSON out; 202 when it was asked for."""

        async def endpoint(request: Request) -> Response:
            asked = _object(await request.body(), request.headers.get("content-type", ""))
            who = f"from {request.client.host if request.client else 'a unix socket'}"
            try:
                done = await to_thread.run_sync(_ACTIONS[name], self._run, asked, who)
            except Fault as fault:
                actions.refused(fault, name, who)
                raise
            return _json({"schema": 1, **done}, 202 if done["asked"] else 200)

        return endpoint

    def _content(self, found: dict[str, Any]) -> dict[str, Any]:
        past = self._watcher.past
        return {"run": found, "files": self._watcher.checkpoints(), "events": list(past.newest)[::-1][:60]}

    def _parts(self) -> dict[str, Any]:
        """What a page that is open may have to change."""
        found = self._watcher.figures()
        if "fault" in found:
            return {"fault": "; ".join(found["fault"])}
        content = self._content(found)
        parts = {name: pages.render(f"parts/{name}.html", **content) for name in pages.PARTS}
        return {
            "parts": parts,
            "step": found["recorded"],
            "run": found["id"],
            "process": found["process"],
            "name": found["name"],
            "policy": (found["curriculum"] or {}).get("policy"),
        }


def _stretch(request: Request, last: int) -> tuple[int, int, int]:
    """`from`, `to` and `columns` of a request; Usage when they are no numbers."""
    values = []
    for name, default, most in (("from", 1, last), ("to", last, last), ("columns", 600, 2000)):
        text = request.query_params.get(name, "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 12):
            raise Usage(f"{name} is no number", found=text[:40], expected="a count")
        values.append(max(1, min(int(text), most)) if text else default)
    return values[0], values[1], values[2]


def _chosen(request: Request, name: str, audits: list[dict[str, Any]], default: int) -> dict[str, Any] | None:
    wanted = request.query_params.get(name)
    found = next((audit for audit in audits if str(audit["step"]) == wanted), None)
    return found or (audits[default] if len(audits) >= -default else None)


def _object(body: bytes, kind: str) -> dict[str, Any]:
    if kind.partition(";")[0].strip() != "application/json":
        raise Usage("an action is asked for in JSON", found=kind[:100], expected="Content-Type: application/json")
    try:
        found = jsontext.loads(body)
    except ValueError as error:
        raise Usage("the request is no JSON", found=str(error), expected="a JSON object") from None
    if not isinstance(found, dict):
        raise Usage("the request is no JSON object", expected="a JSON object")
    return found


def _read(read: Callable[..., str]) -> str:
    try:
        return read(encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _json(content: Any, status: int = 200) -> Response:
    """In ASCII: what was asked for may hold a lone surrogate, which UTF-8 cannot say."""
    return Response(json.dumps(_finite(content), separators=(",", ":")), status, media_type="application/json")


def _finite(value: Any) -> Any:
    """The same with null for what JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _fault(request: Request, fault: Fault) -> Response:
    """What cannot be done, in the words of the command line."""
    names = ("what", "where", "found", "expected", "todo")
    status = 400 if isinstance(fault, Usage) else 409
    return _json({"schema": 1, "error": {name: getattr(fault, name) for name in names}}, status)


def _bug(request: Request, error: Exception) -> Response:
    logging.getLogger("andrea").warning("the page: %s: %r", request.url.path, error, extra={"event": "page"})
    return PlainTextResponse("this answer broke down; the journal of andrea-proxy says how\n", 500)
