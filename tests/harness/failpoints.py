"""Runs the real trainer or proxy with one of its functions made to hurt it at a chosen call.

`python -m harness.failpoints SPECS PROGRAM --run RUN ...`, where PROGRAM is a module with a `main`, and SPECS a JSON
list of
{"at": "module:Name.attribute", "call": k, "do": WHAT, "times": n, "after": bool}. WHAT happens at the k-th call of that
function, and at the n - 1 calls after it (for ever if `times` is 0):

- a signal name (KILL, TERM, USR1): the process gets that signal as the function is entered, or left with `after`; it
  has `seconds`, if that is given, to hear of it before it goes on;
- an errno name (EIO, ENOSPC): the function raises that OSError instead;
- FALSE: the function returns False instead;
- SLEEP: the function takes `seconds` longer;
- CHILD: a child process is started first, harness.helper;
- IMPORTS: from then on, whatever is imported that was not there yet is told on stderr ("imported late: NAME"), first of
  all, for a proof, `__hello__`;
- FLOOD: a thread is started first, which logs `lines` lines a burst, in `bursts` bursts of `seconds` seconds, with as
  long a silence after each.
"""

from __future__ import annotations

import errno
import functools
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def install(spec: dict[str, Any]) -> None:
    module_name, _, path = spec["at"].partition(":")
    owner: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    do, first, times = spec["do"], spec["call"], spec.get("times", 1)

    @functools.wraps(original)
    def hurt(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < first or (times and calls >= first + times):
            return original(*args, **kwargs)
        if do == "FALSE":
            return False
        if hasattr(errno, do):
            raise OSError(getattr(errno, do), os.strerror(getattr(errno, do)))
        if do == "SLEEP":
            time.sleep(spec["seconds"])
            return original(*args, **kwargs)
        if do == "IMPORTS":
            sys.addaudithook(tell_import)
            __import__("__hello__")
            return original(*args, **kwargs)
        if do == "CHILD":
            subprocess.Popen([sys.executable, "-S", str(Path(__file__).with_name("helper.py"))])
            return original(*args, **kwargs)
        if do == "FLOOD":
            how = (spec["bursts"], spec["lines"], spec["seconds"])
            threading.Thread(target=flood, args=how, daemon=True).start()
            return original(*args, **kwargs)
        number = signal.Signals[f"SIG{do}"]
        if spec.get("after"):
            result = original(*args, **kwargs)
            os.kill(os.getpid(), number)
            return result
        os.kill(os.getpid(), number)
        time.sleep(spec.get("seconds", 0.0))
        return original(*args, **kwargs)

    setattr(owner, name, hurt)


def tell_import(event: str, args: tuple[object, ...]) -> None:
    if event == "import":
        print(f"imported late: {args[0]}", file=sys.stderr, flush=True)


def flood(bursts: int, lines: int, seconds: float) -> None:
    log = logging.getLogger("andrea")
    for burst in range(bursts):
        began = time.monotonic()
        for line in range(lines):
            log.info("a line of a flood", extra={"event": "flood", "burst": burst, "line": line, "at": time.time()})
            time.sleep(max(0.0, began + (line + 1) * seconds / lines - time.monotonic()))
        time.sleep(seconds)


def main() -> int:
    specs, program = json.loads(sys.argv.pop(1)), sys.argv.pop(1)
    module = importlib.import_module(program)
    for spec in specs:
        install(spec)
    return int(module.main())


if __name__ == "__main__":
    sys.exit(main())
