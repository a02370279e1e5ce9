"""The device a run is pinned to: resolved once at init, waited for at every start, never silently replaced.

`python -m andrea_train.device` prints the resolution as JSON, so that the command line need not import torch.
Writes no file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch

from andrea_rundir.faults import EXIT_OK, BadConfig, Fault, NoDevice
from andrea_rundir.sections import RunSection

PATIENCE_SECONDS = 600.0
POLL_SECONDS = 5.0
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def resolve(device: str, precision: str, threads: int) -> dict[str, str | int]:
    """What `auto`, `auto` and 0 mean on this machine, to be written into `run.toml`."""
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    elif device == "cuda":
        device = "cuda:0"
    if precision == "auto":
        if device == "cpu":
            precision = "fp32"
        else:
            with torch.cuda.device(device):
                precision = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return {"device": device, "precision": precision, "threads": threads or len(os.sched_getaffinity(0))}


def wait_for(name: str, say: Callable[[str], None], stop_wanted: threading.Event) -> torch.device | None:
    """The device called `name`, once it answers; None if a stop is wanted first.

    A CUDA run never falls back to the CPU: NoDevice after ten minutes, and the service manager tries again. CUDA that
    failed to start once in a process may stay failed there, so it is then asked for by processes of their own; if it
    answers them and not this one, NoDevice at once.
    """
    if name == "auto":
        raise BadConfig(
            "the device is not pinned: another one next time would change what is computed",
            where="run.toml: [run] device",
            found="auto, or no such key",
            expected="cpu or cuda:N, as `andrea init` writes it",
            todo="bring run.toml back from a copy, or write there what the run was begun with",
        )
    device = torch.device(name)
    deadline = time.monotonic() + PATIENCE_SECONDS
    elsewhere = False
    while (reason := _refusal(device)) is not None:
        if elsewhere or time.monotonic() > deadline:
            raise NoDevice(
                f"{name} did not answer" + ("" if elsewhere else f" for {PATIENCE_SECONDS:.0f} s"),
                found=reason + (", though it answers other processes" if elsewhere else ""),
                expected="the device that this run is pinned to",
                todo="look at nvidia-smi and the driver; the run stays as it is and never moves to the CPU",
            )
        while not elsewhere and time.monotonic() <= deadline:
            say(f"waiting for {name}: {reason}")
            if stop_wanted.wait(POLL_SECONDS):
                return None
            elsewhere = _answers_elsewhere(name)
    return device


def _refusal(device: torch.device) -> str | None:
    """Why no tensor can be made there; None when one can."""
    try:
        if device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]
            torch.cuda.set_device(device)  # else whatever takes no device would wake card 0
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return None


def _answers_elsewhere(name: str) -> bool:
    """Whether a process of its own can make a tensor on a device."""
    command = [sys.executable, "-c", f"import torch; torch.zeros(1, device={name!r})"]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:  # a driver that hangs
        return False


def settle(run: RunSection) -> None:
    """Make this process compute the way the run says: threads, strict determinism."""
    torch.set_num_threads(run.threads or len(os.sched_getaffinity(0)))
    if run.compile:
        torch.use_deterministic_algorithms(run.deterministic)
    else:  # the same switch, without importing the compiler: two seconds of every start
        torch.set_deterministic_debug_mode("error" if run.deterministic else "default")
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False  # fp32 means fp32
    # Filling fresh memory guards only against reads of it, which a twin check would show; it costs a pass.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """The context in which a forward pass runs; float32 has none."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=AUTOCAST[precision])


def facts(device: torch.device) -> dict[str, object]:
    """What, besides files and configuration, can change a run's bits: recorded at every start."""
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return {
        "device": str(device),
        "card": card,
        "threads": torch.get_num_threads(),
        "cpu": cpu_model(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "cuda": torch.version.cuda or "",
        },
    }


def cpu_model() -> str:
    """The processor's name as the kernel gives it."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def main() -> int:
    """Print what a request resolves to, or why it cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m andrea_train.device")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    try:
        sys.stdout.write(json.dumps(resolve(args.device, args.precision, args.threads)) + "\n")
    except Fault as fault:
        sys.stderr.write(f"{fault}\n")
        return fault.exit_code
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())
