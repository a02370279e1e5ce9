"""Work that needs torch, asked of the trainer in a process of its own: the command line never imports it.

Writes nothing. Standard library and `andrea_rundir.faults` only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from andrea_rundir.faults import Fault

CLEARING_UP_SECONDS = 10.0
SERVICE = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM")
"""What a service manager sets for us is not meant for our children."""


def ask(module: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `python -m andrea_train.MODULE`; its faults are raised here, with their exit codes."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", f"andrea_train.{module}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name not in SERVICE},
    )
    try:
        out, err = child.communicate(json.dumps(request).encode())
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):  # Ctrl-C reached the child as well, which is clearing up
            with suppress(subprocess.TimeoutExpired):
                child.wait(CLEARING_UP_SECONDS)
        child.terminate()
        child.wait()
        raise
    said = err.decode("utf-8", "replace").strip()
    try:
        found: dict[str, Any] = json.loads(out)
    except ValueError:
        raise Fault(
            "the trainer could not do this",
            where=f"python -m andrea_train.{module}",
            found=said.splitlines()[-1] if said else f"exit code {child.returncode}",
        ) from None
    if "fault" in found:
        fault = Fault(**found["fault"])
        fault.exit_code = child.returncode
        raise fault
    return found
