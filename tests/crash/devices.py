"""Small disks: a file behind a loop device, with a file system on it that can be copied as a power cut leaves it."""

from __future__ import annotations

import subprocess
from pathlib import Path

BYTES = 400 << 20
"""XFS takes no less than 300 MiB; what is not written to takes no room."""
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f"), "btrfs": ("mkfs.btrfs", "-q", "-f")}


class Device:
    """One file system in a file. `mount` and `unmount` it; `copy` it while it is mounted and at rest."""

    def __init__(self, folder: Path, kind: str, image: Path | None = None) -> None:
        """A fresh one, or the one that lies in `image`."""
        self.kind, self.place = kind, folder / "mounted"
        self.image = image if image is not None else folder / "image"
        self.place.mkdir(parents=True)
        if image is None:
            with self.image.open("wb") as file:
                file.truncate(BYTES)
            _call(*MAKE[kind], str(self.image))

    def mount(self) -> Path:
        """Mounting replays the journal. A copy has the identity of its original, which a container that was started
        meanwhile may still see mounted."""
        options = "loop,nouuid" if self.kind == "xfs" else "loop"
        _call("mount", "-t", self.kind, "-o", options, str(self.image), str(self.place))
        return self.place

    def unmount(self) -> None:
        _call("umount", str(self.place))

    def copy(self, image: Path) -> None:
        """The device's bytes as they are at one moment: if something was written meanwhile, it is done again."""
        before = -1
        while before != (now := self._written()):
            before = now
            _call("cp", "--sparse=always", str(self.image), str(image))

    def _written(self) -> int:
        """Sectors ever written to the device."""
        source = _call("findmnt", "-no", "SOURCE", str(self.place)).strip()
        return int((Path("/sys/block") / Path(source).name / "stat").read_text().split()[6])


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
