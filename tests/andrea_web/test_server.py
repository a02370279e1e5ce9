"""The page's server beside the curriculum: a taken port, a crash, a socket that was handed over, restarts, memory."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from andrea_rundir import door
from andrea_rundir.eventlog import EventLog
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from andrea_service import identity
from andrea_web import app, server
from andrea_web.server import Page
from andrea_web.watcher import Watcher
from harness import start_proxy, until
from harness.dry import DryTrainer
from harness.pages import Client
from harness.processes import BLOCKED

Make = Callable[..., RunDir]


def lines(run: RunDir) -> int:
    return run.plan.read_bytes().count(b"\n") if run.plan.exists() else 0


def test_a_port_that_is_taken_is_said_and_the_curriculum_goes_on(make: Make) -> None:
    run = make("taken", {"optimizer": {"max_steps": 4000}})
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with start_proxy(run, "--port", str(port)) as proxy:
            until("the plan begins", lambda: lines(run) >= 2)
            DryTrainer(run, lambda: not time.sleep(0.01)).train(40)
            until("the steps are recorded", lambda: run.loss.read_bytes().count(b'"step":40,') == 1)
            assert proxy.stop() == 0
    said = proxy.said()
    assert "no page" in said and f"127.0.0.1:{port}" in said and "--port" in said and "Traceback" not in said
    found = door.read(run)
    assert found is not None and found.address is None


def test_the_page_breaks_down_and_the_sidecars_are_written_on(make: Make) -> None:
    """And it is started again on the same socket, with the same token."""
    run = make("broken", {"optimizer": {"max_steps": 4000}})
    hurt: list[dict[str, object]] = [{"at": "uvicorn.server:Server.main_loop", "call": 1, "do": "EIO"}]
    with start_proxy(run, "--port", "0", hurt=hurt) as proxy:
        until("the plan begins", lambda: lines(run) >= 2)
        DryTrainer(run, lambda: not time.sleep(0.01)).train(40)
        until("the steps are recorded", lambda: run.loss.read_bytes().count(b'"step":40,') == 1)
        assert Client(run).ask("/api/run").json["step"] == 40
        assert proxy.stop() == 0
    assert "broke down" in proxy.said()


def test_served_on_the_socket_that_was_handed_over_without_any_other(make: Make) -> None:
    """As the unit has it: descriptor 3 listens already. The token stays the same, and is for the owner alone."""
    run = make("handed", {"optimizer": {"max_steps": 4000}})
    code = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3)\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
        "os.execvp(sys.executable, [sys.executable, '-m', 'andrea_web.main', '--run', sys.argv[2]])"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd, address = listener.fileno(), "{}:{}".format(*listener.getsockname())
        answers: list[int] = []
        tokens: set[str] = set()
        asking = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)"
        for _ in range(3):  # the socket outlives each proxy, and what is asked meanwhile waits in it
            ask = [sys.executable, "-c", asking, f"http://{address}/healthz"]
            waiting = subprocess.Popen(ask, stdout=subprocess.PIPE)
            command = [*BLOCKED, sys.executable, "-c", code, str(fd), str(run.root)]
            proxy = subprocess.Popen(command, pass_fds=[fd], stderr=subprocess.DEVNULL)
            answers.append(int(waiting.communicate(timeout=120)[0]))
            assert Client(run).door.address == address and stat.S_IMODE(run.page.stat().st_mode) == 0o600
            tokens.add(Client(run).door.token)
            proxy.send_signal(signal.SIGTERM)
            assert proxy.wait(60) == 0
    assert answers == [200] * 3 and len(tokens) == 1


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_a_socket_that_others_could_reach_is_refused(
    make: Make, address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = make("open")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        monkeypatch.setattr("andrea_web.sockets.handed_over", lambda: [listener.dup()])
        with Page(run, 0):
            found = door.read(run)
            assert found is not None and found.address is None


def test_a_unix_socket_serves_as_well(trained: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "page.sock"))
        listener.listen()
        monkeypatch.setattr("andrea_web.sockets.handed_over", lambda: [listener.dup()])
        with Page(trained, 0), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "page.sock"))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"".join(iter(lambda: client.recv(4096), b"")).endswith(b"ok\n")
            found = door.read(trained)
            assert found is not None and found.address == str(tmp_path / "page.sock")


def test_catching_up_with_4000_steps_and_a_page_that_is_watched_needs_little_memory(make: Make) -> None:
    """Under 100 MB; and it never imports torch."""
    run = make("large", {"optimizer": {"max_steps": 100_000}})
    DryTrainer(run, lambda: False).train(4000)
    with start_proxy(run, "--port", "0") as proxy:
        until("it has caught up", lambda: lines(run) >= 402, 120)
        client = Client(run)
        for path in ("/", "/metrics", "/api/curve", "/api/arms", "/api/probes", "/api/run"):
            assert client.ask(path).status == 200, path
        peak = next(line for line in Path(f"/proc/{proxy.pid}/status").read_text().splitlines() if "VmHWM" in line)
        assert "torch" not in Path(f"/proc/{proxy.pid}/maps").read_text()
        assert proxy.stop() == 0, proxy.said()
    assert int(peak.split()[1]) < 100_000, peak


def test_who_was_accepted_before_an_end_is_answered(trained: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request can be on its way while the proxy is restarted: whoever got a connection gets an answer."""
    monkeypatch.setattr(server, "LAST_SECONDS", 10.0)
    monkeypatch.setattr(server, "FAREWELL_SECONDS", 60.0)
    with Page(trained, 0) as page:
        client = Client(trained)
        assert client.ask("/healthz").status == 200
        host, _, port = str(client.door.address).rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as early:
            until("it is accepted", lambda: page._server is not None and bool(page._server.server_state.connections))
            ending = threading.Thread(target=page.__exit__, args=(None, None, None))
            ending.start()
            time.sleep(1)  # the end has begun
            early.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert early.recv(4096).startswith(b"HTTP/1.1 200")
        ending.join()


def test_it_imports_nothing_of_the_trainer() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\nimport andrea_web.server, andrea_proxy.service\n"
        "assert not [m for m in sys.modules if m.startswith('andrea_train')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})


def test_figures_for_prometheus(trained: RunDir, serve: Callable[[RunDir], Client]) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    client = serve(trained)
    answer = client.ask("/metrics")
    found = {sample.name: sample for f in text_string_to_metric_families(answer.body.decode()) for sample in f.samples}
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    state: dict[str, Any] = json.loads(trained.state.read_bytes())
    assert found["andrea_up"].value == 0 and found["andrea_steps"].value == 60
    assert (
        found["andrea_arm_pulls_total"].value == state["arms"][found["andrea_arm_pulls_total"].labels["arm"]]["pulls"]
    )
    assert found["andrea_run_info"].labels["state"] == "stopped"


def test_a_card_is_shown_while_the_trainer_lives(make: Make, serve: Callable[[RunDir], Client]) -> None:
    run = make("card")
    figures = {"memory": 20_100_000_000, "memory_total": 24_000_000_000, "temperature": 71, "power": 433.25}
    log = EventLog(run.events, clock=lambda: time.time() + 1)
    log.append("start", step=0, attempt=1)
    log.append("card", step=0, **figures, power_limit=None)
    log.close()
    with Lock.acquire(run.train_lock, identity.me()):
        client = serve(run)
        page, metrics = client.ask("/").body.decode(), client.ask("/metrics").body.decode()
    assert "71 °C" in page and "433 W, 20.1 GB of 24 GB" in page
    assert "andrea_card_temperature_celsius 71.0" in metrics and "andrea_card_power_watts 433.25" in metrics
    assert "andrea_card_memory_bytes 2.01e+10" in metrics
    until("it is gone with the trainer", lambda: "71 °C" not in client.ask("/").body.decode())
    assert "andrea_card" not in client.ask("/metrics").body.decode()


def test_a_run_that_cannot_be_read_is_said_and_shown_again_once_it_can(
    mine: RunDir, serve: Callable[[RunDir], Client]
) -> None:
    client = serve(mine)
    assert client.ask("/").status == 200
    text = mine.run_toml.read_text()
    mine.run_toml.unlink()
    until("it says so", lambda: client.ask("/").status == 503)
    assert "no run here" in client.ask("/").body.decode() and b"andrea_up 0.0" in client.ask("/metrics").body
    mine.run_toml.write_text(text)
    until("it shows it", lambda: client.ask("/").status == 200)


def test_the_documented_addresses_are_those_there_are(trained: RunDir) -> None:
    made: Any = app.make(Watcher(trained), "t" * 40)
    paths = {route.path for route in made._inner.routes}
    text = (Path(__file__).parents[2] / "docs" / "page.md").read_text()
    assert {path for path in paths if f"`{path}`" not in text} == set()


def test_vendored_files_are_what_they_were_taken_as() -> None:
    folder = Path(app.pages.FOLDER) / "static" / "uplot"
    assert subprocess.run(["sha256sum", "--check", "--status", "SHA256SUMS"], cwd=folder, check=False).returncode == 0
    assert "MIT" in (folder / "LICENSE").read_text()
