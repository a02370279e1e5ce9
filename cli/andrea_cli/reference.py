"""docs/reference.md: what `--help` says, of every command, as one page.

    python -m andrea_cli.reference > docs/reference.md

Made from the same parsers, so that the two cannot differ; a test compares the page with what comes out here. Writes to
stdout only.
"""

from __future__ import annotations

import argparse

from andrea_cli.main import EXIT_CODES, VERBS, equip
from andrea_proxy.options import parser as proxy_parser
from andrea_train.main import parser as trainer_parser

HEAD = f"""\
# Reference

What `--help` says, made by `python -m andrea_cli.reference > docs/reference.md`.

RUN is a path, or a name under the state directory: `$STATE_DIRECTORY`, else `$ANDREA_STATE`, else `/var/lib/andrea` for
root and `~/.local/state/andrea` for others. Every verb of `andrea` takes `--json` as well.

```
{EXIT_CODES}
```
"""
SERVICES = """\
The exit codes of the two services: 0 stopped or finished; 1 refused; 2 usage; 69 the device cannot be used now; 75
another process holds the lock; 78 bad configuration, no usable checkpoint, diverged or halted.
"""
SHARED = ("help", "json")


def page() -> str:
    """The whole text."""
    sections = [HEAD]
    for name in VERBS:
        parser = argparse.ArgumentParser(prog=f"andrea {name}")
        equip(parser, name)
        sections.append(_section(parser))
    sections += [_section(trainer_parser()), _section(proxy_parser()), SERVICES]
    return "\n".join(sections)


def _section(parser: argparse.ArgumentParser) -> str:
    """One command: how it is typed, what it does, its options."""
    actions = [action for action in parser._actions if action.dest not in SHARED]
    typed = " ".join([parser.prog, *map(_typed, actions)])
    rows = [f"| `{_typed(action, alone=True)}` | {action.help} |" for action in actions if action.help]
    table = ["| option | what |", "|---|---|", *rows, ""] if rows else []
    return "\n".join([f"## {parser.prog}", "", "```", typed, "```", "", (parser.description or "").strip(), "", *table])


def _typed(action: argparse.Action, *, alone: bool = False) -> str:
    """An argument as it stands on a command line; in brackets where it may be left out, unless it stands alone."""
    value = action.metavar or ("{" + ",".join(action.choices) + "}" if action.choices else "")
    value = f"[{value}]" if action.nargs == "?" else str(value)
    text = " ".join([*action.option_strings[:1], *([value] if value and action.nargs != 0 else [])])
    return text if alone or action.required else f"[{text}]"


if __name__ == "__main__":
    print(page(), end="")
