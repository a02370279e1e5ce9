"""Who may: every request passes here first. An ASGI middleware around the whole page.

Promises, in this order: only a Host of this machine (DNS rebinding: a foreign name that points here); nothing that
another site's page fetches, and no unsafe method but from this very page (Sec-Fetch-Site, Origin); a body of at most
64 KiB; and, but for `/healthz`, the token: as a bearer, as the cookie that `/?token=` gives, or not at all (401). A
wrong token is answered a second late, one at a time. No answer may be framed, sniffed, cached or read by another site.
Writes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 64 << 10
LATE_SECONDS = 1.0
COOKIE_SECONDS = 30 * 86400
OPEN = ("/healthz",)
SAFE = ("GET", "HEAD")
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,9}", re.ASCII)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

CLOSED = (
    "This page needs its token. On the machine of the run, `andrea url RUN` prints the link that has it; "
    "paste that link into the address bar.\n"
)


class Guard:
    """`name` tells this run's cookie from those of other pages: browsers share cookies over the ports of a host."""

    def __init__(self, inner: ASGIApp, token: str, name: str) -> None:
        self._inner, self._token = inner, token
        self._name = f"andrea-{name}"
        self._worth = hmac.new(token.encode(), b"cookie", hashlib.sha256).hexdigest()
        self._line = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let it through, or answer it."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = _strange(scope["method"], headers) or await self._stranger(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, guarded)
            return
        body = await _body(headers, receive) if scope["method"] not in SAFE else b""
        if body is None:
            await PlainTextResponse("too much\n", 413)(scope, receive, guarded)
            return
        await self._inner(scope, _replay(body, receive), guarded)

    async def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        """What one without the token is answered; the way in for one who brings it."""
        if scope["path"] in OPEN:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        bearer = headers.get("authorization")
        if given is None and bearer is None:
            return None if self._has_cookie(headers) else PlainTextResponse(CLOSED, 401)
        token = given[-1] if given is not None else (bearer or "").removeprefix("Bearer ")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            async with self._line:
                await asyncio.sleep(LATE_SECONDS)
            return PlainTextResponse("This is not the token. " + CLOSED, 401)
        if given is None:
            return None
        if scope["method"] not in SAFE:
            return PlainTextResponse("the token comes by GET, or as a bearer\n", 403)
        answer = RedirectResponse("/" + scope["path"].lstrip("/"), 303)
        answer.set_cookie(self._name, self._worth, max_age=COOKIE_SECONDS, path="/", httponly=True, samesite="strict")
        return answer

    def _has_cookie(self, headers: Headers) -> bool:
        given = cookie_parser("; ".join(headers.getlist("cookie"))).get(self._name, "")
        return hmac.compare_digest(given.encode(), self._worth.encode())


def _strange(method: str, headers: Headers) -> Response | None:
    """What a request is answered that no page of ours and no person would make."""
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        return PlainTextResponse("this is not the host's name: use 127.0.0.1 or localhost\n", 400)
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if method in SAFE:
        # A link on another page may be followed (the cookie stays behind); nothing else may come from there.
        followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if site in (None, "same-origin", "none") or followed:
            return None
    elif site in (None, "same-origin", "none") and origin in (None, f"http://{hosts[0]}"):
        return None
    return PlainTextResponse("this came from another page\n", 403)


async def _body(headers: Headers, receive: Receive) -> bytes | None:
    """The whole body; None for one that is too large."""
    length = headers.get("content-length", "0")
    if not _LENGTH.fullmatch(length) or int(length) > MOST_BYTES:
        return None
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_BYTES:
            return None
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body first."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replayed
