"""What the page costs on a run of 200,000 entries: first paint, zoom, memory, and what 20 open pages do to appends.

    python benchmarks/page_cost.py

Prints medians; exits 1 when a bound is missed (200 KB and 300 ms for what is first painted, 100 ms for a zoom, 100 MB,
appends no slower than 1.2 times with the pages open).
"""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from proxy_cost import entry

from andrea_rundir import config, door
from andrea_rundir.eventlog import EventLog
from andrea_rundir.lossfile import LossFile
from andrea_rundir.names import RunDir
from andrea_web.server import Page

STEPS, TABS, APPENDS, SHOWN = 200_000, 20, 400, 30
SOURCES = [f"source-{i:02d}" for i in range(16)]
PAINTED = ("/", "/api/curve?columns=600", "/api/arms?columns=200", "/api/probes")

WATCHERS = """
import http.client, sys, threading
def watch():
    connection = http.client.HTTPConnection(sys.argv[1], timeout=60)
    connection.request("GET", "/api/stream", headers={"Authorization": "Bearer " + sys.argv[2]})
    answer = connection.getresponse()
    print("open", flush=True)
    while answer.read1(65536):
        pass
for _ in range(int(sys.argv[3])):
    threading.Thread(target=watch).start()
"""


def make(folder: Path) -> tuple[RunDir, LossFile]:
    """A run of STEPS entries of 16 arms, with a probe and an audit every thousand and hundred steps."""
    run = RunDir(folder)
    about = {"name": "long", "device": "cpu", "precision": "fp32", "threads": 1}
    settings = config.build({"run": about, "optimizer": {"max_steps": 400_000}}, "benchmark")
    run.run_toml.write_text(config.dump(settings))
    loss = LossFile(run.loss)
    for start in range(1, STEPS, 1000):
        loss.append([entry(step, SOURCES) for step in range(start, start + 1000)])
    log = EventLog(run.events)
    arms = dict.fromkeys(SOURCES, 1.2345678901234567)
    for step in range(0, STEPS + 1, 100):
        log.append("checkpoint", step=step, file="x", bytes=1, digest="ab" * 32, seconds=0.5, reason="cadence")
        log.append("audit", step=step, digest="ab" * 32, looped=0, score=100.0, alarm=False, samples=[], seconds=1.0)
        if step % 1000 == 0:
            log.append("probe", step=step, arms=arms, mean=1.2345678901234567, seconds=1.0)
    tell(log, STEPS)
    log.close()
    return run, loss


def tell(log: EventLog, step: int) -> None:
    """The event of a step."""
    log.append("step", **{k: v for k, v in entry(step, SOURCES).items() if k not in ("attempt", "ema", "time")})


def ask(run: RunDir, path: str) -> tuple[float, int]:
    """Seconds and bytes of an answer."""
    found = door.read(run)
    assert found is not None and found.address is not None
    connection = http.client.HTTPConnection(found.address, timeout=60)
    began = time.perf_counter()
    connection.request("GET", path, headers={"Authorization": f"Bearer {found.token}"})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body
    connection.close()
    return time.perf_counter() - began, len(body)


def median(run: RunDir, path: str) -> tuple[float, int]:
    """Median milliseconds of 9 answers, and bytes of the last."""
    found = [ask(run, path) for _ in range(9)]
    return 1000 * statistics.median(seconds for seconds, _ in found), found[-1][1]


def appends(loss: LossFile, first: int) -> list[float]:
    """Seconds of each of APPENDS appends, 200 a second, the fsync of a round of 20 included."""
    taken = []
    for step in range(first, first + APPENDS):
        began = time.perf_counter()
        loss.append([entry(step, SOURCES)])
        if step % 20 == 0:
            loss.sync()
        taken.append(time.perf_counter() - began)
        time.sleep(0.005)
    return taken


def delays(run: RunDir) -> list[float]:
    """Seconds from a step's event to its arrival at a page that is open, SHOWN times, at no fixed beat."""
    found = door.read(run)
    assert found is not None and found.address is not None
    connection = http.client.HTTPConnection(found.address, timeout=60)
    connection.request("GET", "/api/stream", headers={"Authorization": f"Bearer {found.token}"})
    answer, log, taken = connection.getresponse(), EventLog(run.events), []
    for step in range(STEPS + 1, STEPS + 1 + SHOWN):
        time.sleep(0.2 + 0.37 * (step % 5))
        began = time.perf_counter()
        tell(log, step)
        while f'f-step\\">{step:,}<'.encode() not in answer.readline():
            assert time.perf_counter() - began < 60, f"step {step} is not shown"
        taken.append(time.perf_counter() - began)
    log.close()
    connection.close()
    return taken


def compare(run: RunDir, loss: LossFile) -> tuple[float, float, float, float]:
    """Median and 99th percentile of an append in microseconds: no page open, TABS pages open; taking turns."""
    found = door.read(run)
    assert found is not None and found.address is not None
    quiet: list[float] = []
    watched: list[float] = []
    for turn in range(3):
        quiet += appends(loss, STEPS + 1 + 2 * turn * APPENDS)
        command = [sys.executable, "-c", WATCHERS, found.address, found.token, str(TABS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tabs:
            assert tabs.stdout is not None
            for _ in range(TABS):
                tabs.stdout.readline()
            watched += appends(loss, STEPS + 1 + (2 * turn + 1) * APPENDS)
            tabs.kill()
    figures = [(statistics.median(taken), statistics.quantiles(taken, n=100)[98]) for taken in (quiet, watched)]
    return 1e6 * figures[0][0], 1e6 * figures[0][1], 1e6 * figures[1][0], 1e6 * figures[1][1]


def memory() -> int:
    """The most that this process has held, MB."""
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def main() -> int:
    """Measure all, print, judge."""
    with tempfile.TemporaryDirectory() as folder:
        run, loss = make(Path(folder))
        with Page(run, 0):
            cold = ask(run, "/api/run")[0]
            first = {path: median(run, path) for path in PAINTED}
            zoom = median(run, f"/api/curve?columns=600&from={STEPS - 499}")
            late = delays(run)
            quiet, quiet_99, watched, watched_99 = compare(run, loss)
        loss.close()
    painted, paint_ms = sum(count for _, count in first.values()), sum(ms for ms, _ in first.values())
    for path, (ms, count) in first.items():
        print(f"{path}: {ms:.0f} ms, {count / 1000:.0f} KB")
    print(f"first painted: {paint_ms:.0f} ms, {painted / 1000:.0f} KB; right after a start it takes {cold:.1f} s more")
    print(f"zoom to the last 500 steps: {zoom[0]:.0f} ms, {zoom[1] / 1000:.0f} KB")
    print(f"a step is on the page after {statistics.median(late):.2f} s, at most {max(late):.2f} of {SHOWN} times")
    ratio = watched / quiet
    print(f"an append, no page open: {quiet:.0f} us, 99 of 100 within {quiet_99:.0f}")
    print(f"an append, {TABS} pages open: {watched:.0f} us, 99 of 100 within {watched_99:.0f}: ratio {ratio:.2f}")
    print(f"memory: {memory()} MB at most, this benchmark and the page together")
    good = painted < 200_000 and paint_ms < 300 and zoom[0] < 100 and ratio <= 1.2 and memory() < 100 and max(late) < 2
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
