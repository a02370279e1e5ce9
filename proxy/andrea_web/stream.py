"""The event stream: one look a second, and of it only what this page has not seen yet.

Promises that a client that is slow or gone costs no more than its connection. Pure but for the clock.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

SECONDS = 1.0
HEARTBEATS = 15
"""Looks without news after which a comment is sent, so that a dead connection is noticed."""


async def changes(look: Callable[[], Awaitable[dict[str, Any]]], life: str) -> AsyncIterator[str]:
    """Messages of the text/event-stream. `life` names this server: a page that meets another one loads anew."""
    seen: dict[str, Any] = {}
    yield f"retry: 1000\nevent: life\ndata: {life}\n\n"
    silent = 0
    while True:
        found = await look()
        parts = found.pop("parts", {})
        news = {name: text for name, text in parts.items() if seen.get(name) != text}
        if news or found != seen.get("rest"):
            yield f"event: change\ndata: {json.dumps({**found, 'parts': news})}\n\n"
            silent = 0
        elif (silent := silent + 1) >= HEARTBEATS:
            yield ": still here\n\n"
            silent = 0
        seen = {**seen, **parts, "rest": found}
        await asyncio.sleep(SECONDS)
