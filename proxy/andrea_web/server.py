"""The page's server: uvicorn in a thread of the proxy, on sockets that are there already.

Promises that whatever happens here, a taken port, a crash, a full disk, is said and stops nothing else; a server that
crashed is started again on the same sockets. Writes `page.json` through `door`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from types import TracebackType
from typing import Any, Self

import uvicorn

from andrea_rundir import door
from andrea_rundir.faults import Fault
from andrea_rundir.names import RunDir
from andrea_service.signals import leave_aborts
from andrea_web import app, sockets
from andrea_web.watcher import Watcher

AGAIN_SECONDS = 5.0
"""Between a crash and the next try."""
FAREWELL_SECONDS = 3.0
LAST_SECONDS = 0.3
"""Within which who was accepted just before an end sends the request: it is on its way."""
CONNECTIONS = 200
"""At the same time; more are answered 503."""


class _Server(uvicorn.Server):
    """One that answers whom it has accepted: uvicorn hangs up on a connection whose request it has not read yet."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nobody more, and leave those who are there the time to ask."""
        for server in self.servers:
            server.close()
        await asyncio.sleep(LAST_SECONDS)
        await super().shutdown(sockets)


class Page:
    """While entered, the page is served, if that is possible."""

    def __init__(self, run: RunDir, port: int) -> None:
        """Nothing happens yet."""
        self._run, self._port = run, port
        self._log = logging.getLogger("andrea")
        self._sockets: list[socket.socket] = []
        self._server: uvicorn.Server | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="page", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._sockets = sockets.listeners(self._port)
        except Fault as fault:
            self._say(f"no page: {'; '.join(fault.lines())}", logging.WARNING)
            self._note(None)
            return self
        if (opened := self._note(sockets.address(self._sockets[0]))) is not None:
            watcher = Watcher(self._run)
            self._app = app.make(watcher, opened.token)
            self._thread.start()
            threading.Thread(target=watcher.figures, name="first look", daemon=True).start()
            self._say(f"the page is at {opened.address}; `andrea url {self._run.root}` prints the way in")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._server is not None:
            self._server.should_exit = True
            self._thread.join(FAREWELL_SECONDS)
        for listener in self._sockets:
            listener.close()

    def _note(self, address: str | None) -> door.Door | None:
        try:
            return door.open_at(self._run, address)
        except OSError as error:
            self._say(f"no page: {error.strerror}: {self._run.page}", logging.WARNING)
            return None

    def _serve(self) -> None:
        """Until it is over, and again after a crash."""
        leave_aborts()
        while not self._over.is_set():
            try:
                self._server = _Server(_config(self._app))
                self._server.run(sockets=[listener.dup() for listener in self._sockets])
            except BaseException as error:  # uvicorn ends by SystemExit where it cannot start
                self._say(f"the page broke down and is started again: {error!r}", logging.WARNING)
            self._over.wait(AGAIN_SECONDS)

    def _say(self, text: str, level: int = logging.INFO) -> None:
        self._log.log(level, "%s", text, extra={"event": "page"})


def _config(application: Any) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
