"""One pass over an arm's text, counted and digested as it goes by.

Writes nothing. Imports this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from andrea_corpus.source import Source
from andrea_corpus.text import Piece
from andrea_rundir.policy import Arm


@dataclass(frozen=True)
class Progress:
    """How far one arm is; `act` is "reading", then "learning" where a tokenizer is made, then "writing"."""

    arm: str
    act: str
    files_done: int
    files: int
    read: int
    """Bytes of the files, as they lie on disk, read so far in this act."""
    size: int
    """Of all files of the arm."""
    bytes: int
    """Of normalised text."""
    documents: int
    tokens: int


class Reading:
    """Iterate over it for the pieces, then read what it counted; `tokens` is counted by whoever makes them."""

    def __init__(
        self,
        name: str,
        arm: Arm,
        files: list[Path],
        act: str,
        progress: Callable[[Progress], None],
        document: Callable[[bytes], None] = lambda digest: None,
    ) -> None:
        self.name, self.paths = name, files
        self._arm, self._act, self._progress = arm, act, progress
        self._document, self._content = document, hashlib.sha256()
        self.files = len(files)
        self.documents = self.bytes = self.replaced = self.tokens = 0

    def __iter__(self) -> Iterator[Piece]:
        sources = [Source(file, self._arm) for file in self.paths]
        size, before, text = sum(source.size for source in sources), 0, None
        for i, source in enumerate(sources):
            for piece in source:
                if piece.first:
                    self._end(text)
                    text = hashlib.sha256()
                    self.documents += 1
                assert text is not None, "the first piece of a document says so"
                text.update(piece.data)
                self.bytes += len(piece.data)
                yield piece
                counted = (self.bytes, self.documents, self.tokens)
                self._progress(Progress(self.name, self._act, i, self.files, before + source.read, size, *counted))
            before += source.size
            self.replaced += source.replaced
        self._end(text)

    def _end(self, text: hashlib._Hash | None) -> None:
        """Note a document's digest."""
        if text is not None:
            digest = text.digest()
            self._content.update(digest)
            self._document(digest)

    @property
    def content(self) -> str:
        """SHA-256 (hex) of the documents' SHA-256, in order: the text with its document boundaries."""
        return self._content.hexdigest()
