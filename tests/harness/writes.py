"""Everything this process makes a file system do, counted, and one of it made to go wrong: a kill, or a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

ACTS = ("pwrite", "write", "fsync", "rename", "link", "unlink", "ftruncate")


class Killed(BaseException):
    """Where a SIGKILL would have struck."""


@contextmanager
def killed_at(call: int) -> Iterator[list[int]]:
    """The `call`-th write, fsync, rename, link, unlink or truncation in here kills; the list counts them."""
    with _hurt_at(call, ACTS, Killed) as count:
        yield count


@contextmanager
def full_at(call: int) -> Iterator[list[int]]:
    """The `call`-th write in here finds no space left; the list counts them."""
    with _hurt_at(call, ("pwrite", "write"), lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) as count:
        yield count


@contextmanager
def _hurt_at(call: int, names: tuple[str, ...], error: Callable[[], BaseException]) -> Iterator[list[int]]:
    count = [0]

    def hurt(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] == call:
                raise error()
            return real(*args, **kwargs)

        return act

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(os, name, hurt(getattr(os, name)))
        yield count
