"""`.samples.json` and `.state.json`: one JSON object each, with a schema version, replaced atomically by the proxy.

What they hold is said in docs/run-directory.md. Both are caches: whatever cannot be used is kept aside under another
name, never deleted, and made anew from history. Standard library, our faults and publish.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from andrea_rundir import jsontext
from andrea_rundir.faults import raise_shortage
from andrea_rundir.publish import aside, publish

SCHEMA = 1
"""Raised when a field changes its meaning or goes away."""

Content = dict[str, Any]


class Unusable(Exception):
    """The file cannot be used; the text says why. `suffix` is what `set_aside` adds to its name."""

    suffix = ".bad"


class Newer(Unusable):
    """A later version of the project wrote the file."""

    suffix = ".newer"


def save(path: Path, content: Content) -> None:
    """Replace the file, durably. OSError leaves the old one; ValueError for NaN and infinity."""
    text = json.dumps({"schema": SCHEMA, **content}, allow_nan=False, separators=(",", ":"))
    publish(path, text.encode() + b"\n")


def load(path: Path) -> Content | None:
    """What `save` wrote, without the version; None when there is no file. Unusable, Newer; OSError for a shortage."""
    try:
        content = jsontext.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise_shortage(error)
        raise Unusable(f"{path.name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise Unusable(f"{path.name} holds no object")
    schema = content.pop("schema", None)
    if isinstance(schema, int) and schema > SCHEMA:
        raise Newer(f"{path.name} has schema {schema}, this version knows {SCHEMA}")
    if schema != SCHEMA:
        raise Unusable(f"{path.name} has schema {schema!r}, expected {SCHEMA}")
    return content


def set_aside(path: Path, why: Unusable) -> Path:
    """Rename the file to NAME.bad or NAME.newer (then .bad2, ...); nothing is overwritten."""
    target = aside(path, why.suffix)
    path.rename(target)
    return target
