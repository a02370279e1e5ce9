"""A machine that boots: the real systemd of this host, in a container, over an overlay of the host's root.

Everything the host's root holds is seen, nothing of it is changed. The runs lie on a disk of their own (a loop
device), which tests may freeze or slow down. Needs root, systemd-nspawn and loop devices.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from andrea_cli import sandbox
from harness.demands import no_root
from harness.waiting import until

TESTS = Path(__file__).parents[1]
VENV = Path("/opt/andrea/venv")
LENT = Path("/srv/lent")
"""What the tests bring along: themselves, their packages and, where the machine could not see it, their Python."""
STATE = Path("/var/lib/andrea")
DISK_BYTES = 2 << 30
OPTIONS = ("--quiet", "--register=no", "--keep-unit", "--private-network", "--boot", "--console=pipe")
# Two machines in one control group would take each other's units for their own.
OWN_GROUP = """
group=$1; shift
for tree in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
    test -e $tree/cgroup.procs || continue
    mkdir -p $tree/$group && echo $$ >$tree/$group/cgroup.procs
done
exec "$@"
"""
NO_QUESTIONS = ("systemd.firstboot=off", "systemd.mask=systemd-firstboot.service")


def missing() -> str | None:
    """What this host lacks for it; None if nothing."""
    return no_root() or (None if shutil.which("systemd-nspawn") else "systemd-nspawn")


class Machine:
    """One machine; `boot` it, `run` commands in it, `shut_down` or `close` it."""

    def __init__(self, folder: Path, *, own_disk: bool = True) -> None:
        """`own_disk`: the runs lie on one."""
        self.folder = folder
        self.root = folder / "root"
        self.state = self.root / STATE.relative_to("/")
        self.output = folder / "console.log"
        self.group = f"{folder.name}-{os.getpid()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self._loops: list[str] = []
        for name in ("upper", "work", "root"):
            (folder / name).mkdir()
        layers = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
        _call("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        self._clean()
        self._own_disk = own_disk
        if own_disk:
            self.state.mkdir(parents=True)
            device = self._loop()
            _call("mkfs.ext4", "-q", device)
            _call("mount", device, str(self.state))

    def _loop(self) -> str:
        """A block device of the host's, empty."""
        disk = self.folder / f"disk{len(self._loops)}"
        with disk.open("wb") as file:
            file.truncate(DISK_BYTES)
        self._loops.append(_call("losetup", "--find", "--show", str(disk)).strip())
        return self._loops[-1]

    def add_disk(self) -> str:
        """The device of one more disk, as the machine sees it."""
        device = self._loop()
        self.run("mknod", device, "b", *device_numbers(device))
        return device

    def lend(self, venv: Path) -> None:
        """Let a virtual environment of the machine have what the tests' own has, but for the project itself."""
        packages, site = LENT / "packages", venv / "lib" / self.python.name / "site-packages"
        find = f"find {LENT}/site-packages -mindepth 1 -maxdepth 1 ! -name '*andrea*' -exec ln -sft {packages} {{}} +"
        # A new environment may have come with an older setuptools than torch asks for.
        self.run("sh", "-c", f"mkdir -p {packages} && {find} && rm -rf {site}/setuptools* {site}/pkg_resources")
        self.write(f"{site}/lent.pth", f"{packages}\n")

    def _clean(self) -> None:
        """Take away what this host has enabled or installed: the machine is to be a fresh one."""
        for wants in (self.root / "etc/systemd/system").glob("*.wants"):
            shutil.rmtree(wants)
        for name in ("etc/andrea", "var/lib/andrea", "var/cache/andrea", "opt/andrea", "var/log/journal"):
            shutil.rmtree(self.root / name, ignore_errors=True)

    def boot(self) -> None:
        """Start it and wait until systemd says that it is up."""
        python = Path(sys.base_prefix)
        binds = {TESTS: LENT / "tests", Path(sysconfig.get_path("purelib")): LENT / "site-packages"}
        if sandbox.hides(python) is not None:
            binds[python] = self.python.parents[1]
        with self.output.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig=KILL"),  # a suite that is killed leaves no machine running
                    *("sh", "-c", OWN_GROUP, "sh", self.group),
                    "systemd-nspawn",
                    *OPTIONS,
                    f"--directory={self.root}",
                    *(f"--bind-ro={source}:{target}" for source, target in binds.items()),
                    *NO_QUESTIONS,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until("a first process", self._has_leader, 30)
        until("systemd", lambda: self.run("systemctl", "is-system-running", check=False).stdout != "", 30)
        up = ("running\n", "degraded\n")
        until("the end of booting", lambda: self.run("systemctl", "is-system-running", check=False).stdout in up, 180)
        # A Python that lies elsewhere than it was built for must not find another one's library.
        self.write("/etc/ld.so.conf.d/0-lent-python.conf", f"{self.python.parents[1] / 'lib'}\n")
        self.run("ldconfig")

    @property
    def python(self) -> Path:
        """The interpreter that the machine's virtual environment is made from, as the machine sees it."""
        name = f"bin/python3.{sys.version_info.minor}"
        hidden = sandbox.hides(Path(sys.base_prefix)) is not None
        return (LENT / "python" if hidden else Path(sys.base_prefix)) / name

    def _has_leader(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.output.read_text(errors="replace")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for child in children:
            with suppress(OSError):  # one that has just ended
                if Path(f"/proc/{child}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink():
                    self._leader = int(child)
        return self._leader != 0

    def run(
        self, *command: object, check: bool = True, user: str = "", timeout: float = 120, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as root or as `user`; with `check` it must end with 0."""
        enter = ["nsenter", "--target", str(self._leader), *"-m -u -i -n -p -C".split(), "--wdns=/", "--"]
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"] if user else []
        done = subprocess.run(
            [*enter, "env", "-i", f"PATH={path}", "LANG=C.UTF-8", *become, *map(str, command)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            words = " ".join(map(str, command))
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.tail()}")
        return done

    def tail(self) -> str:
        """The end of the journal, for a failed test."""
        return self.run("journalctl", "--no-pager", "-n", "40", check=False).stdout

    def systemctl(self, *arguments: str, check: bool = True, timeout: float = 120) -> str:
        return self.run("systemctl", *arguments, check=check, timeout=timeout).stdout

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Properties of a unit, as systemd has them."""
        text = self.systemctl("show", unit, "-p", ",".join(properties))
        return dict(line.split("=", 1) for line in text.splitlines())

    def state_of(self, unit: str) -> tuple[str, str]:
        """`("active", "success")` and the like."""
        found = self.show(unit, "ActiveState", "Result")
        return found["ActiveState"], found["Result"]

    def main_pid(self, unit: str) -> int:
        return int(self.show(unit, "MainPID")["MainPID"])

    def journal(self, *matches: str, since: str = "") -> list[dict[str, Any]]:
        """Entries of the journal, oldest first."""
        self.run("journalctl", "--sync")
        when = ["--since", since] if since else []
        text = self.run("journalctl", "-o", "json", "--no-pager", *when, *matches).stdout
        return [json.loads(line) for line in text.splitlines()]

    def now(self) -> str:
        """A point in time for `journal(since=...)`."""
        return f"@{time.time():.6f}"

    def kill(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process, named by its pid in the machine, as an operator's `kill` does."""
        self.run("kill", f"-{number.name.removeprefix('SIG')}", pid)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file in the machine, owned by root."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def shut_down(self) -> None:
        """`systemctl poweroff`, until it is off."""
        assert self._process is not None
        self.run("systemctl", "poweroff", "--no-block")
        self._process.wait(120)
        self._process, self._leader = None, 0

    def _no_groups(self) -> bool:
        """Take its control groups away; the kernel keeps those of a process that has not quite gone."""
        trees = list(Path("/sys/fs/cgroup").glob(f"**/{self.group}"))
        for tree in trees:
            remove = ["find", str(tree), "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]
            subprocess.run(remove, stderr=subprocess.DEVNULL, check=False)
        return not trees

    def pull_the_plug(self) -> None:
        """Everything in it dies at once."""
        if self._leader:
            os.kill(self._leader, signal.SIGKILL)  # and with the first process of its namespace all others
        if self._process is not None:
            self._process.wait(120)
        self._process, self._leader = None, 0

    def close(self) -> None:
        """Pull the plug and take everything away."""
        self.pull_the_plug()
        for place in (self.state, self.root)[0 if self._own_disk else 1 :]:
            _call("umount", "--lazy", str(place))
        for device in self._loops:
            _call("losetup", "--detach", device)
        until("the end of its control groups", self._no_groups, 30)


def device_numbers(device: str) -> tuple[int, int]:
    """Major and minor number of a device."""
    number = Path(device).stat().st_rdev
    return os.major(number), os.minor(number)


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
