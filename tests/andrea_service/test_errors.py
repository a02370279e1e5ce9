from __future__ import annotations

import os
import subprocess
import sys

import pytest

from andrea_rundir.faults import BadConfig, Fault, Held, NoDevice, Refused
from andrea_service.errors import boundary


def raising(error: BaseException) -> int:
    raise error


def test_the_code_of_main() -> None:
    assert boundary(lambda: 0, "andrea") == 0
    assert boundary(lambda: 1, "andrea") == 1


@pytest.mark.parametrize(("kind", "code"), [(BadConfig, 78), (Held, 75), (NoDevice, 69), (Refused, 1)])
def test_a_fault_is_told_in_words(capfd: pytest.CaptureFixture[str], kind: type[Fault], code: int) -> None:
    fault = kind("lr is negative", where="run.toml: optimizer.lr", found="-1", expected="> 0", todo="edit it")
    assert boundary(lambda: raising(fault), "andrea-train") == code
    assert capfd.readouterr().err == (
        "andrea-train: lr is negative\n  where:    run.toml: optimizer.lr\n  found:    -1\n"
        "  expected: > 0\n  to do:    edit it\n"
    )


def test_ctrl_c(capfd: pytest.CaptureFixture[str]) -> None:
    assert boundary(lambda: raising(KeyboardInterrupt()), "andrea") == 130
    assert capfd.readouterr().err == ""


def test_a_bug_shows_where_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    assert boundary(lambda: raising(ZeroDivisionError("x")), "andrea") == 70
    told = capfd.readouterr().err
    assert told.startswith("andrea: Traceback")
    assert "ZeroDivisionError: x" in told
    assert "this is a bug" in told
    assert boundary(lambda: raising(OSError(9, "Bad file descriptor")), "andrea") == 70


def test_what_the_machine_refuses_is_no_bug() -> None:
    code = (
        "import os, sys; from andrea_service.errors import boundary; os.setresuid(65534, 65534, 65534);"
        "sys.exit(boundary(lambda: open('/etc/shadow').close(), 'andrea'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (1, "andrea: Permission denied\n  where:    /etc/shadow\n")


def test_a_usage_error_of_argparse_passes() -> None:
    with pytest.raises(SystemExit) as caught:
        boundary(lambda: raising(SystemExit(2)), "andrea")
    assert caught.value.code == 2


# Some places set this for all Python programs: then nothing would be left to flush at the end.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
PROGRAM = """
import sys
from andrea_service.errors import boundary
def main():
    for _ in range({lines}): print("x" * 70)
    return 0
sys.exit(boundary(main, "andrea"))
"""


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_leaves_is_no_error(lines: int) -> None:
    """Whether the pipe breaks in the middle or at the last flush."""
    end, pipe = os.pipe()
    os.close(end)
    code = PROGRAM.format(lines=lines)
    done = subprocess.run([sys.executable, "-c", code], stdout=pipe, stderr=subprocess.PIPE, timeout=30, env=BUFFERED)
    os.close(pipe)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("lines", [1, 100_000])
def test_output_that_was_lost_is_no_success(lines: int) -> None:
    code = PROGRAM.format(lines=lines)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, timeout=30, env=BUFFERED
        )
    assert (done.returncode, done.stderr) == (1, b"andrea: No space left on device\n")


def test_a_closed_stdout_is_nobodys_fault() -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", PROGRAM.format(lines=1)]
    done = subprocess.run(command, capture_output=True, timeout=30, env=BUFFERED)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_closed_stderr_changes_no_code() -> None:
    code = (
        "import sys; from andrea_rundir.faults import Held; from andrea_service.errors import boundary\n"
        "def main(): raise Held('x')\nsys.exit(boundary(main, 'andrea'))"
    )
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(command, timeout=30).returncode == 75
