"""Figures to HTML: templates with everything escaped, and how numbers, spans and times are written.

Promises that text of the run (samples, names, warnings) is shown as text, whatever is in it: escaped, its direction
kept to itself, lone surrogates as escapes. Reads the package's templates; writes nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_eval_context
from jinja2.nodes import EvalContext
from markupsafe import Markup

from andrea_cli.facts import moment
from andrea_cli.output import size, span
from andrea_web.figures import stamp

FOLDER = Path(__file__).parent
DASH = "–"
PARTS = ("status", "arms", "checkpoints", "events")
"""Sections that change while one looks at them; each is a template of its own."""
LONGEST = 2000
"""Characters of a warning or a reason; the whole stands in the run's files."""


def _number(value: Any, digits: int) -> str:
    return DASH if not _known(value) else f"{value:,.{digits}f}"


def _percent(value: Any) -> str:
    return DASH if not _known(value) else f"{100 * value:.1f} %"


def _signed(value: Any, digits: int) -> str:
    return DASH if not _known(value) else f"{value:+,.{digits}f}".replace("-", "−")


def _brief(value: Any) -> str:
    """A field of an event in a line: floats to four digits, tables as `name value`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_brief(item)}" for name, item in value.items())
    return str(value)


def _known(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _time(value: Any) -> Markup:
    """UTC; the script adds the local time. Takes seconds since the epoch, or an event's time."""
    seconds = value if _known(value) else moment(value)
    if seconds is None:
        return Markup(DASH)
    text = stamp(seconds)
    return Markup('<time datetime="{}">{} UTC</time>').format(text, text[:-1].replace("T", " "))


@pass_eval_context
def _text(context: EvalContext, value: Any, longest: int = LONGEST) -> Markup:
    """Text of the run, its direction kept to itself."""
    text = str(value)
    cut = f"{text[:longest]}… ({len(text) - longest:,} more characters)" if longest and len(text) > longest else text
    return Markup("<bdi>{}</bdi>").format(cut)


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": _number,
        "percent": _percent,
        "signed": _signed,
        "when": _time,
        "text": _text,
        "brief": _brief,
        "span": lambda value: DASH if value is None else span(value),
        "bytes": lambda value: DASH if value is None else size(value),
        "points": lambda pairs: " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs),
    }
    return made


_ENVIRONMENT = _environment()


def render(template: str, **content: Any) -> str:
    """A template's text, as UTF-8 can carry it."""
    text = _ENVIRONMENT.get_template(template).render(**content)
    return text.encode("utf-8", "backslashreplace").decode()
