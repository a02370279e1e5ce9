"""The way in: where the page is served and the token that opens it, kept with the run, for its owner alone.

Promises that the token stays the same over restarts, so that an open page goes on, and that nobody but the owner of the
run could ever read it: a file that others could read is made anew. Writes `page.json` (mode 0600).
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from andrea_rundir import jsontext
from andrea_rundir.names import RunDir
from andrea_rundir.publish import publish

SCHEMA = 1
TOKEN_BYTES = 32


@dataclass(frozen=True)
class Door:
    """`address` is `host:port`, the path of a unix socket, or None where no page is served."""

    token: str
    address: str | None


def read(run: RunDir) -> Door | None:
    """What is on record; None when there is nothing that may be used. PermissionError for others than the owner."""
    try:
        if run.page.stat().st_mode & 0o077:
            return None
        found = jsontext.loads(run.page.read_bytes())
        schema, token, address = found["schema"], found["token"], found["address"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    if schema != SCHEMA or not (isinstance(token, str) and len(token) >= TOKEN_BYTES and token.isascii()):
        return None
    return Door(token, address if isinstance(address, str) else None)


def open_at(run: RunDir, address: str | None) -> Door:
    """Put down where the page is served from now on; OSError when that cannot be written."""
    before = read(run)
    door = Door(before.token if before else secrets.token_urlsafe(TOKEN_BYTES), address)
    if door != before:
        content = {"schema": SCHEMA, "address": door.address, "token": door.token}
        publish(run.page, json.dumps(content).encode() + b"\n", mode=0o600)
    return door
