"""A coroutine run in a thread of its own: the main one has an event loop already where another test has a browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """What it returns or raises; a thread that hangs holds up nobody's end."""
    found: Future[Any] = Future()

    def body() -> None:
        try:
            found.set_result(asyncio.run(main))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=body, daemon=True).start()
    return found.result()
