"""Tries what a sandbox should forbid, and prints what it could do: `python -m harness.sandboxed`."""

from __future__ import annotations

import getpass
import json
import os
import socket
from pathlib import Path

PLACES = {
    "state": "/var/lib/andrea",
    "cache": "/var/cache/andrea",
    "tmp": "/tmp",
    "etc": "/etc/andrea",
    "run": "/run",
    "opt": "/opt/andrea",
    "usr": "/usr/local/bin",
    "shm": "/sys/fs/cgroup",
    "proc": "/proc/sys/kernel",
}
FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "netlink": socket.AF_NETLINK, "packet": socket.AF_PACKET}


def write(folder: str) -> bool:
    path = Path(folder) / "andrea-was-here"
    try:
        path.write_text("")
        path.unlink() if folder != "/tmp" else None
    except OSError:
        return False
    return True


def connect(family: int) -> bool:
    try:
        socket.socket(family, socket.SOCK_STREAM if family in (socket.AF_INET, socket.AF_INET6) else socket.SOCK_RAW)
    except OSError:
        return False
    return True


def listing(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def main() -> None:
    found = {
        "writes": {name: write(folder) for name, folder in PLACES.items()},
        "network": {name: connect(family) for name, family in FAMILIES.items()},
        "namespace": os.readlink("/proc/self/ns/net"),
        "homes": [*listing("/root"), *listing("/home")],
        "processes": sum(name.isdigit() for name in listing("/proc")),
        "user": getpass.getuser(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
