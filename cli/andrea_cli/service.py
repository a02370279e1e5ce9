"""Under which unit of the service manager a process runs, and whether that unit starts at boot.

Reads /proc and asks `systemctl`; where there is none, the answer is None. Writes nothing. Standard library only.
"""

from __future__ import annotations

from pathlib import Path

BOOTED = Path("/run/systemd/system")
TARGET = "andrea.target"
TIMEOUT_SECONDS = 5


def unit_of(pid: int) -> str | None:
    """The service unit that the process belongs to, from its control group; None if it is in none of ours."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    names = [part for line in groups for part in line.split(":", 2)[-1].split("/")]
    return next((name for name in names if name.startswith("andrea-") and name.endswith(".service")), None)


def starts_at_boot(unit: str) -> bool | None:
    """Whether `unit` is enabled, itself or through `andrea.target`; None when nobody can say."""
    if not BOOTED.is_dir():
        return None
    own = _enabled(unit)
    if own is not False:
        return own
    return "@" not in unit and _enabled(TARGET) is True


def _enabled(unit: str) -> bool | None:
    import subprocess

    try:
        asked = subprocess.run(
            ["systemctl", "is-enabled", unit],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    word = asked.stdout.strip()
    return word == "enabled" if word else None  # "enabled-runtime" does not outlive a reboot
