"""The texts of the real suite: a tenth of each of six Debian packages, and two decoys made here.

Promises the same documents wherever the same package versions are installed. Reads what `dpkg-query` lists; writes
nothing.
"""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import blake2b
from pathlib import Path

import numpy as np

from andrea_rundir.faults import BadConfig

PART = 10
"""One byte in so many of a package is used, so that a short run meets repeats, as a long one on all of it would."""

DECOYS = ("shuffled", "templated")
SHUFFLED = "foldoc"
"""The source whose characters are shuffled: the one whose size is nearest to the mean."""


@dataclass(frozen=True)
class Origin:
    """Where an arm's text comes from: the files of a package that match, split into documents."""

    package: str
    files: str
    split: Callable[[str], list[str]]


def whole(text: str) -> list[str]:
    """A file is a document."""
    return [text]


def entries(text: str) -> list[str]:
    """A dictionary's entries: a head word at the margin, its meaning indented."""
    return [entry.strip() + "\n" for entry in re.split(r"\n\n(?=\S)", text)]


def fortunes(text: str) -> list[str]:
    """Quotations, a line with a per cent sign between them."""
    return [quotation.strip() + "\n" for quotation in re.split(r"^%$", text, flags=re.MULTILINE)]


def meanings(text: str) -> list[str]:
    """A line a meaning: word and gloss of WordNet's data files."""
    lines = [line.partition(" | ") for line in text.splitlines() if " | " in line]
    return [f"{fields.split()[4].replace('_', ' ')}: {gloss.strip()}\n" for fields, _, gloss in lines]


ORIGINS = {
    "anarchism": Origin("anarchism", "*/markdown/*.md.gz", whole),
    "foldoc": Origin("dict-foldoc", "*/foldoc.dict.dz", entries),
    "fortunes": Origin("fortunes", "*.u8", fortunes),
    "manpages": Origin("manpages", "*/man/man?/*.gz", whole),
    "policy": Origin("debian-policy", "*.txt.gz", whole),
    "wordnet": Origin("wordnet-base", "*/data.*", meanings),
}


def gather() -> dict[str, list[str]]:
    """Documents of each arm, by name; BadConfig names the packages that are not there."""
    files = {arm: _files(origin) for arm, origin in ORIGINS.items()}
    missing = [ORIGINS[arm].package for arm, found in files.items() if not found]
    if missing:
        raise BadConfig(
            "texts of the real suite are not installed",
            found=f"nothing of {', '.join(missing)}",
            expected="the Debian packages " + ", ".join(origin.package for origin in ORIGINS.values()),
            todo=f"apt-get install --no-install-recommends {' '.join(missing)}",
        )
    texts = {
        arm: part(document for file in files[arm] for document in origin.split(_read(file)))
        for arm, origin in ORIGINS.items()
    }
    model = "".join(texts[SHUFFLED])
    return dict(sorted({**texts, "shuffled": [shuffled(model)], "templated": [templated(len(model))]}.items()))


def _files(origin: Origin) -> list[Path]:
    """The package's files that match and are there; a system may have been told to leave documents out."""
    try:
        asked = subprocess.run(["dpkg-query", "-L", origin.package], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return [Path(line) for line in sorted(asked.stdout.splitlines()) if fnmatch(line, origin.files) and _there(line)]


def _there(line: str) -> bool:
    return Path(line).is_file()


def _read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix in (".gz", ".dz") else data).decode("utf-8", "replace")


def part(documents: Iterable[str]) -> list[str]:
    """A PART of the text: documents in the order of their digests, each once, the last one cut to fit."""
    unique = {blake2b(data).digest(): data for text in documents if (data := text.encode()).strip()}
    left = sum(map(len, unique.values())) // PART
    chosen = []
    for digest in sorted(unique):
        data = unique[digest][:left]
        left -= len(data)
        if data:
            chosen.append(data.decode("utf-8", "ignore"))
    return chosen


def shuffled(text: str) -> str:
    """All of its characters in a random order: as high a loss as any, and nothing to learn beyond their frequencies."""
    return "".join(np.random.default_rng(1).permutation(list(text)).tolist())


TOWNS = ("Ashford", "Brindle", "Coldwater", "Dunmere", "Eastholt", "Fallow", "Grimsby", "Harrow")
GOODS = ("barley", "candles", "flax", "herring", "iron", "oak", "salt", "wool")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def templated(size: int) -> str:
    """One sentence over and over with other words in its blanks, at least so many characters: learned at once."""
    draw = np.random.default_rng(2)
    lines: list[str] = []
    while size > 0:
        day, goods, town, other = (str(draw.choice(words)) for words in (DAYS, GOODS, TOWNS, TOWNS))
        count = int(draw.integers(10, 100))
        lines.append(
            f"On {day} the clerk of {town} received {count} crates of {goods}, sent by the clerk of {other}.\n"
        )
        size -= len(lines[-1])
    return "".join(lines)
