from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

from harness.commands import Andrea, Wish


def on_a_terminal(*arguments: object) -> str:
    """What `andrea` shows on stderr when that is a terminal."""
    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-m", "andrea_cli.main", *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # EIO: the other end is closed
            break
        shown += data
    os.close(ours)
    assert child.wait() == 0, shown
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def test_a_terminal_gets_bars_with_counts_and_a_time(wish: Wish) -> None:
    wish.add(wish.config, "[model]", '[tokenizer]\nkind = "bpe"\n[model]')
    wish.source.write_text("the quick brown fox jumps over the lazy dog\n" * 100_000)
    shown = on_a_terminal(*wish.arguments)
    for part in ("reading a", "writing a", "4.4 MB, 1 documents", "100 %", "tokens"):
        assert part in shown
    assert re.search(r"\d:\d\d:\d\d|-:--:--", shown)


def test_elsewhere_there_is_silence(andrea: Andrea, wish: Wish) -> None:
    assert andrea(*wish.arguments).err == ""
