"""From system calls to deeds: follows names and descriptors, and says what was done to which file below a folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from crash.calls import TEXT, Call, Unknown, data, fds, paths
from crash.ops import ROOT, Deed, End, Names, Op, Recording, Resize, Sync, Write

EVENT = re.compile(rb'\{"event":"(\w+)"')


@dataclass
class _Open:
    """An open file, shared by descriptors that were copied."""

    node: int
    append: bool
    at: int = 0


class Follower:
    """Keeps the tree as it is now, who has what open, and writes down the deeds."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._ops: list[Op] = []
        self._names: dict[int, dict[str, int]] = {ROOT: {}}
        self._content: dict[int, bytearray] = {}
        self._parent: dict[int, int] = {}
        self._open: dict[tuple[int, int], _Open] = {}
        self._made = ROOT

    def follow(self, made: list[Call]) -> Recording:
        """What the calls did; the folder was empty at first."""
        for call in made:
            if call.name in ("clone", "clone3", "fork", "vfork"):
                self._parent[call.result] = call.thread if "CLONE_THREAD" in call.args else call.result
        for call in made:
            self._follow(call)
        return Recording(self._ops, frozenset(self._names))

    def _follow(self, call: Call) -> None:
        name, args = call.name, call.args
        if name == "end":
            return self._ended(call)
        if name in ("open", "openat", "creat", "openat2"):
            return self._opened(call)
        if name in ("dup", "dup2", "dup3"):
            if was := self._open.get(self._slot(call, int(args.split("<")[0]))):
                self._open[self._slot(call, call.result)] = was
            return None
        if name in ("io_uring_setup", "sync"):
            raise Unknown(f"{name} by {call.thread}")
        if name == "mmap":
            shared = "MAP_SHARED" in args and "PROT_WRITE" in args
            if shared and any(self._inside(path) is not None for path in fds(args)):
                raise Unknown(f"a shared writable mapping: {args}")
            return None
        if name in ("rename", "renameat", "renameat2", "link", "linkat"):
            return self._two_names(call)
        if name in ("unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "symlink", "symlinkat"):
            return self._one_name(call)
        path = fds(args[: args.find(",")] if "," in args else args)
        if path and self._inside(path[0]) is not None:
            self._through(call)
        return None

    def _ended(self, call: Call) -> None:
        """The end of a thread says nothing; that of a process is noted where it did anything."""
        if call.thread == self._of(call.thread) and any(op.process == call.thread for op in self._ops):
            self._do(call, End(), "end")

    # Names.

    def _one_name(self, call: Call) -> None:
        place = self._place(paths(call.args)[0])
        if place is None:
            return None
        if call.name.startswith("symlink"):
            raise Unknown(f"a symbolic link: {place[1]}")
        if not call.name.startswith("mkdir"):
            return self._do(call, Names(place[0], ((place[1], None),)), f"{call.name} {place[1]}")
        node = self._new()
        self._names[node] = {}
        return self._do(call, Names(place[0], ((place[1], node),)), f"mkdir {place[1]}")

    def _two_names(self, call: Call) -> None:
        before, after = (self._place(path) for path in paths(call.args)[:2])
        if before is None and after is None:
            return None
        if before is None or after is None:
            raise Unknown(f"{call.name} across the border: {paths(call.args)}")
        node = self._names[before[0]][before[1]]
        if call.name.startswith("link"):
            return self._do(call, Names(after[0], ((after[1], node),)), f"link {before[1]} {after[1]}")
        if before[0] != after[0]:
            raise Unknown(f"a rename from folder to folder: {paths(call.args)}")
        changes = ((before[1], None), (after[1], node))
        return self._do(call, Names(after[0], changes), f"rename {before[1]} {after[1]}")

    def _opened(self, call: Call) -> None:
        self._open.pop(self._slot(call, call.result), None)
        place = self._place(paths(call.args)[0])
        if place is None or not place[1]:
            return
        folder, name = place
        node = self._names[folder].get(name)
        if node is None:
            node = self._new()
            self._content[node] = bytearray()
            self._do(call, Names(folder, ((name, node),)), f"create {name}")
        elif node in self._names:
            return
        elif "O_TRUNC" in call.args and self._content[node]:
            self._do(call, Resize(node, 0), f"truncate {name}")
        self._open[self._slot(call, call.result)] = _Open(node, "O_APPEND" in call.args)

    # Descriptors.

    def _through(self, call: Call) -> None:
        """A call whose first argument is a descriptor of ours."""
        fd, path = int(call.args.split("<")[0]), fds(call.args)[0]
        name = path.rsplit("/", 1)[-1]
        if call.name in ("fsync", "fdatasync"):
            opened = self._open.get(self._slot(call, fd))
            node = opened.node if opened is not None else self._inside(path)
            assert node is not None
            return self._do(call, Sync(node), f"{call.name} {name}")
        opened = self._open.get(self._slot(call, fd))
        if call.name == "ioctl" and "FICLONE" not in call.args:
            return None
        if call.name == "lseek" and opened is None:  # a copied descriptor: if it were written to, we would stop here
            return None
        if opened is None:
            raise Unknown(f"{call.name} of {path} through a descriptor that nobody opened")
        numbers = [int(n, 0) for n in re.findall(r"(?<=, )(?:0x[0-9a-f]+|\d+)(?=, |$)", TEXT.sub('""', call.args))]
        match call.name:
            case "lseek":
                opened.at = call.result
            case "write" | "writev":
                at = len(self._content[opened.node]) if opened.append else opened.at
                written = data(call)
                kind = EVENT.match(written)
                about = f" {kind[1].decode()}" if kind else ""
                self._do(call, Write(opened.node, at, written), f"write {name}{about}")
                opened.at = at + call.result
            case "pwrite64":
                self._do(call, Write(opened.node, numbers[-1], data(call)), f"pwrite {name}")
            case "ftruncate":
                self._do(call, Resize(opened.node, numbers[-1]), f"ftruncate {name} {numbers[-1]}")
            case "sendfile" | "copy_file_range" | "ioctl":
                self._copied(call, opened, name)
            case _:
                raise Unknown(f"{call.name} of {path}")
        return None

    def _copied(self, call: Call, target: _Open, name: str) -> None:
        """A whole file copied into a new one by the kernel, in pieces: the source is read where it is."""
        source = Path(fds(call.args)[1 if call.name != "copy_file_range" else -1])
        if call.name == "copy_file_range":
            raise Unknown(f"copy_file_range of {source}")
        node = self._inside(str(source))
        content = bytes(self._content[node]) if node is not None else source.read_bytes()
        count = len(content) if call.name == "ioctl" else call.result
        self._do(call, Write(target.node, target.at, content[target.at : target.at + count]), f"{call.name} {name}")
        target.at += count

    # The tree.

    def _do(self, call: Call, deed: Deed, text: str) -> None:
        self._ops.append(Op(deed, self._of(call.thread), call.begin, call.end, text))
        match deed:
            case Names(folder, changes):
                for name, node in changes:
                    if node is None:
                        self._names[folder].pop(name)
                    else:
                        self._names[folder][name] = node
            case Write(node, at, written):
                content = self._content[node]
                content.extend(b"\0" * (at - len(content)))
                content[at : at + len(written)] = written
            case Resize(node, size):
                content = self._content[node]
                content.extend(b"\0" * (size - len(content)))
                del content[size:]
            case Sync() | End():
                pass

    def _new(self) -> int:
        self._made += 1
        return self._made

    def _place(self, path: str) -> tuple[int, str] | None:
        """Folder and name of a path; None outside. The root itself has the name ""."""
        if path == self._root:
            return ROOT, ""
        if not path.startswith(self._root + "/"):
            return None
        *above, name = path.removeprefix(self._root + "/").split("/")
        if not above and name.endswith(".log"):  # what the tests catch of a program's output
            return None
        folder = ROOT
        for part in above:
            folder = self._names[folder][part]
        return folder, name

    def _inside(self, path: str) -> int | None:
        """The node of a path; None outside, or when it has none any more."""
        place = self._place(path)
        if place is None:
            return None
        return ROOT if place[1] == "" else self._names[place[0]].get(place[1])

    # Who.

    def _of(self, thread: int) -> int:
        """The process of a thread."""
        while (parent := self._parent.get(thread, thread)) != thread:
            thread = parent
        return thread

    def _slot(self, call: Call, fd: int) -> tuple[int, int]:
        return self._of(call.thread), fd
