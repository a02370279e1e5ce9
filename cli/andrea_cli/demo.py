"""The demo run: its configuration, its policy, and real text that every machine with Python has.

Nothing is downloaded. The texts go to data/demo/ of the run: a folder an arm, a file a document. They are not
fsynced; the shards made of them are. Standard library, `andrea_rundir.config` and `andrea_rundir.policy`.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path

from andrea_rundir import config, policy
from andrea_rundir.faults import BadConfig

CONFIG: dict[str, object] = {
    "run": {"name": "demo"},
    "model": {"preset": "andrea-tiny"},
    "tokenizer": {"kind": "bytes"},
    "optimizer": {
        "lr": 3e-3,
        "min_lr": 1e-4,
        "warmup_steps": 100,
        "max_steps": 4000,
        "batch_size": 4,  # at this size many small steps learn more in a minute than few large ones
    },
    "checkpoint": {"every": 100},
    "samples": {"tokens": 128},
    "probe": {"every": 500},
}
LIMITS: dict[str, dict[str, float]] = {
    "docstrings": {"floor": 0.1},
    "read-mes": {"floor": 0.1},
    "reference": {"floor": 0.1},
    "source": {"floor": 0.1, "cap": 0.4},
}
LEAST_BYTES = 16_384
"""An arm with less text than this is left out, and said so."""
MOST_BYTES = 900_000
"""An arm takes no more text than this."""
MOST_OF_ONE = 60_000
"""No single document is longer."""

Texts = dict[str, dict[str, str]]
"""Document by name, by arm."""

_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data", "encodings"}


def gather() -> Texts:
    """The texts of all arms that this machine has enough of; BadConfig when it has none."""
    even, odd = _library()
    found = {
        "docstrings": _bounded(_docstrings(even)),
        "read-mes": _bounded(_readmes()),
        "reference": _bounded(_reference()),
        "source": _bounded(_source(odd)),
    }
    texts = {arm: documents for arm, documents in found.items() if _size(documents) >= LEAST_BYTES}
    if not texts:
        raise BadConfig(
            "this Python came without the texts of the demo",
            where=sysconfig.get_path("stdlib"),
            expected="the standard library as source, or the language reference (pydoc_data)",
            todo="use another Python, or `andrea init RUN --config FILE --policy FILE` with texts of your own",
        )
    return texts


def write(texts: Texts, folder: Path) -> None:
    """A folder an arm, a `.txt` a document."""
    for arm, documents in texts.items():
        (folder / arm).mkdir(parents=True)
        for name, text in documents.items():
            (folder / arm / f"{name}.txt").write_text(text, encoding="utf-8")


def rules(arms: Texts, folder: Path) -> policy.Policy:
    """The policy over those arms, whose texts lie in `folder`."""
    return policy.Policy(arms={arm: policy.Arm(path=str(folder / arm), **LIMITS[arm]) for arm in sorted(arms)})


def settings() -> config.RunConfig:
    """The configuration."""
    return config.build(CONFIG, "the demo")


def _bounded(documents: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Documents, cut to MOST_OF_ONE, until there are MOST_BYTES of them; names made fit for files."""
    chosen: dict[str, str] = {}
    total = 0
    for name, text in documents:
        text = text.encode("utf-8", "replace")[:MOST_OF_ONE].decode("utf-8", "ignore").strip() + "\n"
        if total + len(text) > MOST_BYTES:
            break
        if len(text) > 200:
            chosen[re.sub(r"[^A-Za-z0-9_-]+", ".", name).strip(".")] = text
            total += len(text)
    return chosen


def _size(documents: dict[str, str]) -> int:
    return sum(map(len, documents.values()))


def _reference() -> Iterator[tuple[str, str]]:
    """The language reference, as `help("topics")` shows it."""
    try:
        topics: dict[str, str] = import_module("pydoc_data.topics").topics
    except ImportError:
        return
    yield from sorted(topics.items())


def _readmes() -> Iterator[tuple[str, str]]:
    """The descriptions of installed packages."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        about = distribution.metadata
        text = about.get_payload() or about["Description"]  # type: ignore[attr-defined]
        if isinstance(text, str) and about["Name"]:
            found.setdefault(str(about["Name"]).lower(), text)
    yield from sorted(found.items())


def _library() -> tuple[list[tuple[str, Path]], list[tuple[str, Path]]]:
    """Modules of the standard library in a fixed order that mixes them, in two halves without a common file."""
    root = Path(sysconfig.get_path("stdlib"))
    halves: tuple[list[tuple[str, Path]], list[tuple[str, Path]]] = ([], [])
    found = []
    for folder, inside, files in os.walk(root):
        inside[:] = [name for name in inside if name not in _SKIPPED]
        found += [os.path.relpath(f"{folder}/{name}", root) for name in files if name.endswith(".py")]
    for key, name in sorted((hashlib.sha256(name.encode()).digest(), name) for name in found):
        halves[key[-1] % 2].append((name.removesuffix(".py"), root / name))
    return halves


def _source(modules: list[tuple[str, Path]]) -> Iterator[tuple[str, str]]:
    for name, path in modules:
        try:
            with tokenize.open(path) as file:
                yield name, file.read()
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue  # a broken file of the machine's is not ours to mend


def _docstrings(modules: list[tuple[str, Path]]) -> Iterator[tuple[str, str]]:
    for name, text in _source(modules):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        yield name, "\n\n".join(_documented(tree))


def _documented(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The docstrings of a module or class and of what it defines, in order."""
    if text := ast.get_docstring(node):
        yield text
    for inside in node.body:
        if isinstance(inside, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _documented(inside)
