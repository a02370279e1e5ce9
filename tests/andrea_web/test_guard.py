"""Who may: every address, asked in every way that a stranger, another site or a rebound name could ask."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from andrea_rundir.names import RunDir
from andrea_web import app
from andrea_web.guard import HEADERS, MOST_BYTES, Guard
from andrea_web.watcher import Watcher
from harness.pages import Answer, Client

PATHS = (
    *("/", "/healthz", "/metrics", "/api/run", "/api/curve", "/api/arms", "/api/probes", "/api/checkpoints"),
    *("/api/events", "/api/samples", "/api/stream", "/api/stop", "/api/checkpoint", "/api/pivot"),
    *("/static/page.css", "/static/uplot/uPlot.iife.min.js", "/nowhere", "//", "/api/../", "/static/../guard.py"),
)
METHODS = ("GET", "POST", "HEAD", "OPTIONS")


@pytest.fixture(scope="module")
def client(trained: RunDir, serve: Callable[[RunDir], Client]) -> Client:
    return serve(trained)


def asked(client: Client, path: str, method: str, **headers: str | None) -> Answer:
    return client.ask(path, method, read=path != "/api/stream", **headers)


def verdict(answer: Answer) -> str:
    """Which of the guard's doors it came to; "in" when the page itself has answered."""
    if answer.status == 400 and answer.body in (b"", b"Invalid HTTP request received."):  # said before any of our code
        return "host"
    assert {name: answer.headers.get(name.lower(), answer.headers.get(name)) for name in HEADERS} == HEADERS
    assert not any(name.lower().startswith("access-control") for name in answer.headers)
    plain = answer.headers.get("content-type", "").startswith("text/plain")
    return {400: "host", 401: "token", 403: "site"}.get(answer.status, "in") if plain else "in"


def deviations(own: str, port: int) -> Iterator[tuple[dict[str, str | None], str]]:
    """Headers, and at which door the request is turned away, whatever its path, with its token in order."""
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "localhost:9999"):
        yield {"Host": host}, "in"
    for host in (
        None,
        "",
        "evil.example",
        f"evil.example:{port}",
        f"127.1:{port}",
        f"localhost.:{port}",
        "127.0.0.1.evil.example",
    ):
        yield {"Host": host}, "host"
    for host in (f"localhost:{port}@evil.example", "0.0.0.0", "[::]", "127.0.0.1:", "localhost:80 evil", "127.0.0.2"):
        yield {"Host": host}, "host"
    for site in ("cross-site", "same-site", "nonsense", ""):
        yield {"Sec_Fetch_Site": site}, "site"
    for site in ("same-origin", "none"):
        yield {"Sec_Fetch_Site": site}, "in"


def test_the_matrix(client: Client) -> None:
    """Every address and method: Host before all, then Sec-Fetch-Site and Origin, then the token; then the page."""
    own = f"http://{client.door.address}"
    port = int(own.rpartition(":")[2])
    count = 0
    for path in PATHS:
        for method in METHODS:
            where = f"{method} {path}"
            safe = method in ("GET", "HEAD")
            for headers, door in deviations(own, port):
                assert verdict(asked(client, path, method, **headers)) == door, (where, headers)
            for origin in ("https://evil.example", "null", "http://localhost:1", own.replace("http", "https")):
                for site in (None, "same-origin"):
                    found = verdict(asked(client, path, method, Origin=origin, Sec_Fetch_Site=site))
                    assert found == ("in" if safe else "site"), (where, origin, site)
            assert verdict(asked(client, path, method, Origin=own, Sec_Fetch_Site="same-origin")) == "in", where
            for cookie in (None, "andrea-000000000000=", "andrea-000000000000=x", f"token={client.door.token}"):
                door = "in" if path == "/healthz" else "token"
                assert verdict(asked(client, path, method, Authorization=None, Cookie=cookie)) == door, (where, cookie)
            link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
            assert verdict(asked(client, path, method, **link)) == ("in" if safe else "site"), where
            frame = link | {"Sec_Fetch_Dest": "iframe"}
            assert verdict(asked(client, path, method, **frame)) == "site", where
            count += 1
    assert count == len(PATHS) * len(METHODS)


def test_the_matrix_knows_every_address(trained: RunDir) -> None:
    made: Any = app.make(Watcher(trained), "t" * 40)
    assert isinstance(made, Guard)
    paths = {route.path for route in made._inner.routes}
    assert {path for path in paths if path != "/static"} <= set(PATHS), "an address that no test asks for"


def test_the_token_becomes_a_cookie_once(client: Client) -> None:
    answer = client.ask(f"/?token={client.door.token}", Authorization=None)
    assert (answer.status, answer.headers["location"]) == (303, "/") and client.door.token not in str(answer.headers)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie and "Domain" not in cookie
    pair = cookie.partition(";")[0]
    assert client.ask("/api/run", Authorization=None, Cookie=f"theirs={{1}}; {pair}").status == 200
    assert client.ask("/api/run", Authorization=None, Cookie=pair[:-1]).status == 401
    assert client.ask(f"/api/stop?token={client.door.token}", "POST", b"{}", Authorization=None).status == 403
    for slashes in ("//", "///", "/\\\\"):
        elsewhere = client.ask(f"{slashes}evil.example/?token={client.door.token}", Authorization=None)
        assert not elsewhere.headers.get("location", "/x").startswith(("//", "/\\"))


def test_a_wrong_token_is_answered_late(client: Client) -> None:
    began = time.monotonic()
    assert client.ask("/api/run", Authorization="Bearer " + "x" * 43).status == 401
    assert client.ask("/?token=wrong", Authorization=None).status == 401
    assert time.monotonic() - began > 1.9


def test_a_body_that_is_too_large_is_not_read(client: Client) -> None:
    """Whether it says how long it is or not."""
    assert client.ask("/api/stop", "POST", b"x" * (MOST_BYTES + 1), Content_Type="application/json").status == 413
    host, _, port = str(client.door.address).rpartition(":")
    head = f"POST /api/stop HTTP/1.1\r\nHost: {client.door.address}\r\nAuthorization: Bearer {client.door.token}\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as raw:
        raw.sendall((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
        for _ in range(3):
            raw.sendall(b"7fff\r\n" + b"x" * 0x7FFF + b"\r\n")
        assert b" 413 " in raw.recv(100)


def test_what_a_stranger_is_told_says_nothing_about_the_run(client: Client, trained: RunDir) -> None:
    body = client.ask("/", Authorization=None).body
    assert b"andrea url" in body and b"small" not in body and str(trained.root).encode() not in body
