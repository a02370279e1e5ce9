from __future__ import annotations

import array
import fcntl
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_service import journal

LOG = "import logging, sys; from pathlib import Path; from andrea_service.journal import setup\n"
SETUP = LOG + "log = setup('run-1', socket_path=Path(sys.argv[1]))\n"


def decode(data: bytes) -> dict[str, str]:
    """The journal's side of the protocol."""
    fields: dict[str, str] = {}
    while data:
        head, data = data.split(b"\n", 1)
        name, equals, value = head.partition(b"=")
        if not equals:
            (length,) = struct.unpack_from("<Q", data)
            value, end, data = data[8 : 8 + length], data[8 + length : 9 + length], data[9 + length :]
            assert end == b"\n"
        fields[name.decode()] = value.decode()
    return fields


class Journald:
    """A socket that speaks it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(5)

    def hear(self) -> tuple[dict[str, str], int | None]:
        """Fields, and the seals if they came in a memfd."""
        data, rights, _, _ = self.socket.recvmsg(1 << 20, socket.CMSG_SPACE(4))
        if not rights:
            return decode(data), None
        assert data == b""
        (fd,) = array.array("i", rights[0][2])
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        with os.fdopen(fd, "rb") as file:
            file.seek(0)
            return decode(file.read()), seals


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[Journald]:
    journald = Journald(tmp_path / "journal")
    yield journald
    journald.socket.close()


def begin(code: str, path: Path, stderr: Path, *, stream: str = "") -> subprocess.Popen[bytes]:
    """Runs `code` with stderr as the journal's stream, or with another `stream` named."""
    with stderr.open("wb") as file:
        stat = os.fstat(file.fileno())
        env = {**os.environ, "INVOCATION_ID": "1" * 32, "JOURNAL_STREAM": stream or f"{stat.st_dev}:{stat.st_ino}"}
        return subprocess.Popen(
            [sys.executable, "-c", code, path], env=env, stderr=file, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


def finish(child: subprocess.Popen[bytes]) -> bytes:
    try:
        out, _ = child.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        child.kill()
        raise
    assert child.returncode == 0
    return out


def test_fields(journald: Journald, tmp_path: Path) -> None:
    extra = {"event": "checkpoint", "step": 100, "path": "a/step_000100.bin", "odd-key é": "→"}
    code = SETUP + f"log.info('saved %s', 'it', extra={extra!r})\nlog.warning('two\\nlines', extra={{'event': 'x'}})"
    finish(begin(code, journald.path, tmp_path / "err"))
    assert journald.hear()[0] == {
        "MESSAGE": "saved it",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "-c",
        "ANDREA_RUN": "run-1",
        "MESSAGE_ID": journal.MESSAGE_IDS["checkpoint"],
        "ANDREA_EVENT": "checkpoint",
        "ANDREA_STEP": "100",
        "ANDREA_PATH": "a/step_000100.bin",
        "ANDREA_ODD_KEY__": "→",
    }
    fields, _ = journald.hear()
    assert (fields["MESSAGE"], fields["PRIORITY"], fields["ANDREA_EVENT"]) == ("two\nlines", "4", "x")
    assert "MESSAGE_ID" not in fields
    assert (tmp_path / "err").read_bytes() == b""


def test_a_traceback_travels_in_the_message(journald: Journald, tmp_path: Path) -> None:
    finish(begin(SETUP + "try: 1 / 0\nexcept Exception: log.exception('oh')", journald.path, tmp_path / "err"))
    fields, _ = journald.hear()
    assert fields["MESSAGE"].startswith("oh\nTraceback")
    assert fields["PRIORITY"] == "3"


def test_too_long_for_a_datagram_goes_in_a_sealed_memfd(journald: Journald, tmp_path: Path) -> None:
    finish(begin(SETUP + "log.info('x' * 5_000_000); log.info('next')", journald.path, tmp_path / "err"))
    fields, seals = journald.hear()
    assert fields["MESSAGE"] == "x" * 5_000_000
    assert seals == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    assert journald.hear()[0]["MESSAGE"] == "next"


def test_a_hung_journal_holds_nobody_up_and_the_loss_is_said(journald: Journald, tmp_path: Path) -> None:
    code = SETUP + (
        "for i in range(9000): log.info('%d', i)\n"
        "print(flush=True); sys.stdin.readline(); log.info('last'); sys.stdin.readline()\n"
    )
    child = begin(code, journald.path, tmp_path / "err")
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()  # nobody has read the journal yet
    heard = [journald.hear()[0] for _ in range(4000)]
    child.stdin.write(b"\n")
    child.stdin.flush()
    while heard[-1]["MESSAGE"] != "last":
        heard.append(journald.hear()[0])
    finish(child)
    said = [fields for fields in heard if fields.get("ANDREA_EVENT") == "dropped"]
    kept = [int(fields["MESSAGE"]) for fields in heard[:-1] if "ANDREA_EVENT" not in fields]
    assert kept == sorted(set(kept))
    assert {fields["MESSAGE_ID"] for fields in said} == {journal.MESSAGE_IDS["dropped"]}
    assert {fields["PRIORITY"] for fields in said} == {"4"}
    dropped = sum(int(fields["MESSAGE"].split()[0]) for fields in said)
    assert dropped > 4000
    assert dropped + len(kept) == 9000


def test_a_process_leaves_a_hung_journal_soon(journald: Journald, tmp_path: Path) -> None:
    finish(begin(SETUP + "for i in range(9000): log.info('%d', i)", journald.path, tmp_path / "err"))


def test_all_that_waits_is_written_before_the_end(journald: Journald, tmp_path: Path) -> None:
    patient = "from andrea_service import journal; journal._FAREWELL = 60.0\n"
    child = begin(patient + SETUP + "for i in range(500): log.info('%d', i)", journald.path, tmp_path / "err")
    assert [journald.hear()[0]["MESSAGE"] for _ in range(500)] == [str(i) for i in range(500)]
    finish(child)


def test_without_a_journal_socket_it_goes_to_stderr(tmp_path: Path) -> None:
    code = SETUP + "log.error('two\\nlines')"
    finish(begin(code, tmp_path / "none", tmp_path / "err"))
    assert (tmp_path / "err").read_text() == "<3>two\n<3>lines\n"


def test_a_stderr_that_is_not_the_journals_gets_priorities(journald: Journald, tmp_path: Path) -> None:
    """JOURNAL_STREAM is inherited: a shell's redirection must win over it."""
    code = SETUP + (
        "log.critical('a'); log.error('b'); log.warning('c'); log.info('d'); log.debug('e'); log.log(25, 'f é')\n"
    )
    finish(begin(code, journald.path, tmp_path / "err", stream="1:1"))
    assert (tmp_path / "err").read_text() == "<2>a\n<3>b\n<4>c\n<6>d\n<6>f é\n"
    journald.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        journald.hear()


def test_a_terminal_gets_plain_lines(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", SETUP + "log.info('hello')", "none"], stderr=theirs, timeout=30, check=True)
    os.close(theirs)
    assert re.fullmatch(rb"\d\d:\d\d:\d\d INFO hello\r\n", os.read(ours, 1000))
    os.close(ours)


def test_a_wrong_log_call_ends_nothing(journald: Journald, tmp_path: Path) -> None:
    finish(begin(SETUP + "log.info('%d', 'x'); log.info('after')", journald.path, tmp_path / "err"))
    assert journald.hear()[0]["MESSAGE"] == "after"
    assert "Logging error" in (tmp_path / "err").read_text()


def test_setting_up_again_replaces(journald: Journald, tmp_path: Path) -> None:
    code = SETUP + (
        "log = setup('run-2', socket_path=Path(sys.argv[1])); log.info('once')\n"
        "import threading; print(len(log.handlers), threading.active_count())"
    )
    assert finish(begin(code, journald.path, tmp_path / "err")) == b"1 2\n"
    assert journald.hear()[0]["ANDREA_RUN"] == "run-2"
    journald.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        journald.hear()


def test_message_ids_are_fixed_and_distinct() -> None:
    ids = list(journal.MESSAGE_IDS.values())
    assert len(set(ids)) == len(ids)
    assert all(uuid.UUID(value).hex == value and uuid.UUID(value).version == 4 for value in ids)
    assert journal.MESSAGE_IDS["checkpoint"] == "228a41f198f7452387b7ed5939a9ace6"


def test_every_kind_that_is_logged_has_an_id_and_the_other_way_round() -> None:
    rooms = [Path(__file__).parents[2] / room for room in ("common", "daemon", "proxy")]
    sources = [path for room in rooms for path in room.rglob("*.py") if path.name != "journal.py"]
    text = "\n".join(path.read_text() for path in sources)
    logged = set(re.findall(r'extra=\{"event": "([a-z-]+)"|\bevent="([a-z-]+)"', text))
    kinds = {one or other for one, other in logged}
    assert kinds <= journal.MESSAGE_IDS.keys()
    for kind in journal.MESSAGE_IDS.keys() - {"dropped"}:
        assert f'"{kind}"' in text, f"nothing logs {kind}"


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True), st.text()))
def test_what_is_encoded_is_what_the_journal_reads(fields: dict[str, str]) -> None:
    clean = {name: value.encode("utf-8", "replace").decode() for name, value in fields.items()}
    assert decode(journal.datagram(fields)) == clean
