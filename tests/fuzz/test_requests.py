"""Requests to the run page: whatever is asked, by whomever, is answered; a bad one with 4xx."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from andrea_rundir.names import RunDir
from andrea_web import app, guard
from andrea_web.watcher import Watcher
from fuzz import loops
from fuzz.effort import examples
from fuzz.hurting import bounded, hurt
from fuzz.mutations import ODD, RAW, mutated

TOKEN = "t" * 43
PATHS = (
    *("/", "/healthz", "/metrics", "/api/run", "/api/curve", "/api/arms", "/api/probes", "/api/checkpoints"),
    *("/api/events", "/api/samples", "/static/page.css", "/static/../app.py", "/static/..%2f..%2fapp.py", "/static/\0"),
    *("/static//etc/passwd", "//evil.example/", "/static/\udcff", "/static/" + "x" * 5000),
)
GIVEN = "Bearer " + TOKEN

paths = st.sampled_from(PATHS) | st.text(max_size=30).map(lambda text: "/" + text)
raws = st.binary(max_size=30) | st.sampled_from((b"", b"x" * 9000, b"9" * 5000, b"\xff", b"application/json", b"\0"))
headers = st.lists(
    st.tuples(
        st.sampled_from((
            *(b"host", b"origin", b"cookie", b"authorization", b"content-type", b"content-length", b"sec-fetch-site"),
            *(b"range", b"if-modified-since", b"if-none-match", b"sec-fetch-mode", b"x"),
        )),
        raws,
    ),
    max_size=3,
)  # fmt: skip
queries = st.binary(max_size=40) | st.builds(
    lambda name, value: name + b"=" + value,
    st.sampled_from((b"from", b"to", b"columns", b"left", b"right", b"token")),
    st.sampled_from((b"", b"-1", b"1e9", b"9" * 11, b"9" * 5000, b"\xd9\xa1", b"%00", b"%ff", b"0", b"NaN", b"x")),
)
bodies = (
    st.sampled_from(ODD).map(lambda value: json.dumps(value).encode())
    | st.sampled_from(RAW)
    | st.binary(max_size=50)
    | st.dictionaries(
        st.sampled_from(("run", "process", "policy", "text", "abort", "after", "confirm", "step")),
        st.sampled_from(ODD),
        max_size=4,
    ).map(lambda value: json.dumps(value).encode())
)


@pytest.fixture(scope="module", autouse=True)
def no_waiting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "LATE_SECONDS", 0.0)
        yield


def ask(
    run: RunDir, method: str, path: str, query: bytes = b"", given: Any = (), body: bytes = b"", ours: bool = True
) -> int:
    """The status of the answer, asked of a fresh page without a socket."""
    own = [(b"host", b"localhost"), (b"authorization", GIVEN.encode()), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query,
        "root_path": "",
        "headers": [*(own if ours else own[:1]), *given],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    answers: list[Any] = []
    asked = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        while not asked:  # whoever asks for more waits until the client is gone, which it never is
            await asyncio.sleep(3600)
        return asked.pop()

    async def send(message: Any) -> None:
        answers.append(message)

    async def main() -> None:
        await app.make(Watcher(run), TOKEN)(scope, receive, send)

    loops.run(main())
    assert answers and answers[-1]["type"] == "http.response.body"
    return int(answers[0]["status"])


@given(
    method=st.sampled_from(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "x")),
    path=paths,
    query=queries,
    given=headers,
    ours=st.booleans(),
)
@examples(100)
def test_any_request(run: RunDir, method: str, path: str, query: bytes, given: Any, ours: bool) -> None:
    with bounded():
        assert ask(run, method, path, query, given, ours=ours) < 500


@given(path=st.sampled_from(("/api/stop", "/api/checkpoint", "/api/pivot")), body=bodies, given=headers)
@example(path="/api/pivot", body=rb'{"run":"\ud800"}', given=[])  # its refusal could not be encoded
@examples(60)
def test_any_body(run: RunDir, path: str, body: bytes, given: Any) -> None:
    """Nobody works on the run, so nothing can be asked for."""
    before = sorted(run.root.rglob("*"))
    with bounded():
        status = ask(run, "POST", path, given=given, body=body)
    assert status < 500
    assert sorted(run.root.rglob("*")) == before or path == "/api/pivot"
    run.policy_next.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "name", ("events/000001.jsonl", ".loss.json", ".state.json", ".samples.json", "lineage.json", "SHA256SUMS")
)
@given(data=st.data())
@examples(8)
def test_a_page_of_a_hurt_run(run: RunDir, name: str, data: st.DataObject) -> None:
    """Shown as far as it can be; where it cannot, 503 says why."""
    path = run.root / name
    with hurt(path, data.draw(mutated(path.read_bytes()))):
        for address in ("/", "/metrics", "/api/run", "/api/curve", "/api/arms", "/api/probes", "/api/checkpoints"):
            assert ask(run, "GET", address) in (200, 503)
