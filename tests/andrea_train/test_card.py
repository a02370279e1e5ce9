"""What the driver says of a card: asked through NVML's own binding, of a driver that is made up, but a library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from andrea_rundir.events import read
from harness.preload import library

UUID = "11111111-2222-3333-4444-555555555555"
DRIVER = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 6 ? "Not Found" : "Not Supported"; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)1;
    return strcmp(uuid, "GPU-UUID") ? 6 : 0;
}
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    *memory = (Memory){24000000000ULL, 4000000000ULL, 20000000000ULL};
    return 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 433250; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { return 3; /* not supported */ }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { *celsius = 71; return sensor; }
""".replace("GPU-UUID", f"GPU-{UUID}")
ASK = """
import json, logging, sys
from pathlib import Path
import pynvml
from andrea_rundir.eventlog import EventLog
from andrea_train import card
from andrea_train.outside import Outside

events = EventLog(Path(sys.argv[2]))
outside = Outside(None, None, None, None, logging.getLogger(), events)
try:
    handle = card.found(sys.argv[1])
except pynvml.NVMLError as error:
    sys.exit(str(error))
asked = card.Card(handle, outside)
for step in (7, 8, 9):
    asked.tell(step)
events.close()
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver's library in it."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    library(folder / "driver.c", folder / "libnvidia-ml.so.1")
    return folder


def ask(uuid: str, events: Path, libraries: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A process that looks for the card and lets it tell at three steps in a row."""
    env = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
    command = [sys.executable, "-c", ASK, uuid, str(events)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_what_the_driver_tells_is_an_event_now_and_then(driver: Path, tmp_path: Path) -> None:
    done = ask(UUID, tmp_path / "events", driver)
    assert done.returncode == 0, done.stderr
    (event,) = read(tmp_path / "events")
    assert event | {"time": ""} == {
        "event": "card",
        "time": "",
        "step": 7,
        "memory": 20_000_000_000,
        "memory_total": 24_000_000_000,
        "temperature": 71,
        "power": 433.25,
        "power_limit": None,
    }


def test_a_card_that_the_driver_does_not_know_is_no_card(driver: Path, tmp_path: Path) -> None:
    assert "Not Found" in ask(UUID.replace("1", "9"), tmp_path / "events", driver).stderr


def test_a_machine_without_a_driver(tmp_path: Path) -> None:
    done = ask(UUID, tmp_path / "events")
    assert done.returncode == 1 and "NVML Shared Library Not Found" in done.stderr
    assert "Traceback" not in done.stderr and not list(read(tmp_path / "events"))
