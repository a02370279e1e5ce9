"""TOML files that people edit: reading with errors an operator can act on, and writing values back.

Shared by `config` and `policy`. Writes no file. Imports the standard library, pydantic and `faults`.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from andrea_rundir.faults import BadConfig, raise_shortage

Keys = Mapping[str, Sequence[str]]
"""Known keys by section: "" for the top level, "run", or "arms.*" where the operator names the tables."""


def read(path: Path) -> str:
    """The text of a file; BadConfig when it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise_shortage(error)
        raise BadConfig(
            "the file cannot be read",
            where=str(path),
            found=error.strerror or str(error),
            expected="a TOML file",
        ) from None
    except UnicodeDecodeError as error:
        raise BadConfig(
            "the file is not UTF-8",
            where=f"{path}: byte {error.start}",
            found=f"byte 0x{error.object[error.start]:02x}",
            expected="UTF-8 text",
        ) from None


def tables(text: str, where: str) -> dict[str, Any]:
    """The parsed file; BadConfig with line and column when it is not TOML (a key given twice included)."""
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadConfig("the file is not valid TOML", where=where, found=str(error), expected="TOML 1.0") from None
    if _deeper(found, _LEVELS):
        raise BadConfig("tables are nested too deep", where=where, expected=f"at most {_LEVELS} levels")
    return found


_LEVELS = 20
"""More than any table of ours, and nothing that the stack of whoever looks at them cannot hold."""


def _deeper(value: object, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _deeper(item, levels - 1) for item in inside)


def broken_rule(key: str, what: str, found: object, expected: str) -> PydanticCustomError:
    """An error for validators to raise about a rule between keys.

    `key` is spelt from the validated table on; text in `found` is a phrase, a text of the file goes through `shown`.
    """
    found = found if isinstance(found, str) else shown(found)
    return PydanticCustomError("rule", "{what}", {"what": what, "key": key, "found": found, "expected": expected})


def fault(error: ValidationError, where: str, keys: Keys) -> BadConfig:
    """The first thing pydantic found wrong, in our words; how many more there are is said too."""
    problems = error.errors(include_url=False)
    first = problems[0]
    location = tuple(str(part) for part in first["loc"])
    context = first.get("ctx", {})
    todo = f"{len(problems) - 1} more to mend in the same file" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        return _unknown_key(location, where, keys, todo)
    if first["type"] == "rule":
        key = ".".join((*location, context["key"])) if context["key"] else ".".join(location)
        found, expected, what = context["found"], context["expected"], context["what"]
    else:
        key, found = ".".join(location), shown(first["input"])
        what, expected = f"{key or 'the file'} has a value that cannot be used", _expectation(first["msg"])
    return BadConfig(what, where=f"{where}: {key}", found=found, expected=expected, todo=todo)


def _expectation(message: str) -> str:
    return re.sub(r"^(Input|Value|String) should (be )?", "", message).replace("'", '"')


def _unknown_key(location: tuple[str, ...], where: str, keys: Keys, todo: str) -> BadConfig:
    key = location[-1]
    section = "" if len(location) == 1 else location[0] if location[0] in keys else f"{location[0]}.*"
    return BadConfig(
        f"unknown key {key}",
        where=f"{where}: {'.'.join(location)}",
        found=key,
        expected=_suggestion(key, section, keys),
        todo=todo,
    )


def _suggestion(key: str, section: str, keys: Keys) -> str:
    """The same name elsewhere, else the nearest here, else the nearest elsewhere, else all names here."""
    here = keys.get(section, ())
    elsewhere = {name: other for other, names in keys.items() if other != section for name in names}
    if key in elsewhere:
        return f"did you mean {_spelt(elsewhere[key], key)}?"
    if name := nearest(key, here):
        return f"did you mean {name}?"
    if name := nearest(key, elsewhere):
        return f"did you mean {_spelt(elsewhere[name], name)}?"
    return "one of " + ", ".join(here)


def _spelt(section: str, name: str) -> str:
    if not section:
        return f"[{name}]" if name != "learner" else f"{name} (before any section)"
    return f"[{section.replace('*', 'NAME')}] {name}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, if any is at all like it."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return close[0] if close else None


def shown(value: object) -> str:
    """A value as it would stand in a TOML file, cut to a line."""
    text = quoted(value) if isinstance(value, (str, bool, int, float, list, tuple)) else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def quoted(value: object) -> str:
    """A TOML value: string, bool, int, finite float, or a list or table of those."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{bare(name)} = {quoted(item)}" for name, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(quoted(item) for item in value) + "]"
    return repr(value)


def bare(key: str) -> str:
    """A TOML key, in quotes where it needs them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quoted(key)
