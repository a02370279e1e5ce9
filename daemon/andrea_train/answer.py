"""How the command line has torch work done: a JSON request on stdin, a JSON answer on stdout, in its own process.

Promises that a fault arrives whole, with its exit code, and that nothing else stands on stdout. Writes no file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from andrea_rundir.faults import EXIT_OK, Fault

Request = Mapping[str, Any]


def answer(work: Callable[[Request], Mapping[str, Any]]) -> int:
    """Do what stdin asks for; the exit code."""
    request = json.load(sys.stdin)
    try:
        found, code = dict(work(request)), EXIT_OK
    except Fault as fault:
        facts = {name: getattr(fault, name) for name in ("what", "where", "found", "expected", "todo")}
        found, code = {"fault": facts}, fault.exit_code
    sys.stdout.write(json.dumps(found, allow_nan=False) + "\n")
    return code
