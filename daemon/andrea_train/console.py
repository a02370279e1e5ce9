"""What a person watching sees: one line that moves on a terminal, plain lines elsewhere, and the unit's STATUS.

Promises to show only figures that stand in the events as well. Writes to stderr through the log, and to the
terminal if there is one.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from andrea_service.notify import Notifier

TERMINAL_SECONDS = 0.2
PLAIN_SECONDS = 10.0
STATUS_SECONDS = 1.0
RATE_KEEP = 0.95
BAR = 24


class Console:
    """Shows the progress of a run of `total` steps, which lies in `root`."""

    def __init__(self, root: Path, total: int, log: logging.Logger, notifier: Notifier) -> None:
        self._root, self._total = root, total
        self._log = log
        self._notifier = notifier
        self._terminal = sys.stderr.isatty()
        self._rate: float | None = None
        self._shown = self._told = 0.0
        self.line = "starting"

    def step(self, step: int, loss: float | None, seconds: float, tokens: int, saved: int) -> None:
        """One finished step: smoothed loss in nats a token, its duration, its tokens, the newest checkpoint."""
        own = tokens / max(seconds, 1e-9)
        self._rate = own if self._rate is None else RATE_KEEP * self._rate + (1 - RATE_KEEP) * own
        left = duration((self._total - step) * tokens / self._rate)
        shown = "-" if loss is None else f"{loss:.3f}"
        self.line = (
            f"step {step}/{self._total}  loss {shown}  {self._rate:,.0f} tokens/s  "
            f"{left} left  last checkpoint {saved if saved >= 0 else 'none'}"
        )
        now = time.monotonic()
        if now - self._told >= STATUS_SECONDS:
            self._told = now
            self._notifier.status(self.line)
        if now - self._shown >= (TERMINAL_SECONDS if self._terminal else PLAIN_SECONDS):
            self._shown = now
            self._show(step)

    def _show(self, step: int) -> None:
        if not self._terminal:
            self._log.info("%s", self.line, extra={"event": "progress", "step": step})
            return
        done = min(BAR, BAR * step // max(1, self._total))
        _terminal(f"\r\x1b[K[{'=' * done}{' ' * (BAR - done)}] {self.line}")

    def say(self, text: str, **fields: Any) -> None:
        """A line that stays."""
        if self._terminal:
            _terminal("\r\x1b[K")
        self._log.info("%s", text, extra=fields)

    def saved(self, step: int, digest: str) -> None:
        """A checkpoint is durable."""
        text = f"checkpoint step_{step:06d}.bin is durable (sha256 {digest[:12]}…); {self.line}"
        self.say(text, event="checkpoint", step=step, path=str(self._root / f"step_{step:06d}.bin"), digest=digest)

    def sample(self, step: int, audit: dict[str, Any]) -> None:
        """The first of the texts that the model wrote at `step`."""
        first = audit["samples"][0]
        text = " ".join(f"{first['prompt'][-24:]}|{first['text']}".split())
        # A line with control characters is no line for the journal: it would show "[64B blob data]".
        text = "".join(letter if letter.isprintable() else "·" for letter in text[:160])
        self.say(f"sample at step {step}: {text}", event="audit", step=step)

    def end(self, step: int, reason: str) -> None:
        """The last line."""
        self._notifier.status(f"ended at step {step}: {reason}")
        self.say(f"ended at step {step}: {reason}", event="stop", step=step)


def _terminal(text: str) -> None:
    """To the terminal, if it still is there: one that was closed must not end a run."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def duration(seconds: float) -> str:
    """A time span as a person says it: `3d 4h`, `2h 5m`, `4m 10s`, `9s`."""
    whole = int(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // part}{smaller}"
    return f"{whole}s"
