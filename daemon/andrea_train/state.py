"""The training state, which *is* the checkpoint file: weights, m and v as flat vectors in file order.

Promises that a snapshot is three copies into one page-aligned buffer of exactly the file's bytes, allocated once; that
on CUDA they run beside whatever comes next, up to the next update, which waits for them on the device; and that a file
is read into the vectors themselves, piece by piece. Imports torch; writes no file.
"""

from __future__ import annotations

import torch

from andrea_rundir.checkpoint import HEADER, file_size, values_of
from andrea_rundir.layout import Shape
from andrea_rundir.publish import image_buffer


class State:
    """`step` optimizer steps' worth of training: three float32 vectors `[n_params]` on the device."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape = shape
        self.step = 0
        self.w = torch.zeros(shape.n_params, device=device)
        self.m = torch.zeros_like(self.w)
        self.v = torch.zeros_like(self.w)
        self.read: torch.cuda.Event | None = None
        """The end of the copy that may still be reading these vectors on the device."""

    def fill(self, start: int, piece: memoryview) -> None:
        """Take over the values in `piece`, which begins at byte `start` of a checkpoint file; `step` is left alone."""
        for name, first, values in values_of(start, piece, self.shape.n_params):
            vector: torch.Tensor = getattr(self, name)
            vector[first : first + len(values)].copy_(torch.from_numpy(values))

    def about_to_change(self) -> None:
        """Have what the device does next wait for a snapshot under way; the host goes on at once."""
        if self.read is not None:
            torch.cuda.current_stream(self.w.device).wait_event(self.read)
            self.read = None


class Staging:
    """One checkpoint's bytes in memory, `[header|w|m|v]`: what the disk is written from."""

    def __init__(self, n_params: int, device: torch.device) -> None:
        size = file_size(n_params)
        self._device = device
        self.n_params = n_params
        self._map = image_buffer(size)
        self.image = memoryview(self._map)[:size]
        self.w, self.m, self.v = (
            torch.frombuffer(self._map, dtype=torch.float32, count=n_params, offset=8 + 4 * n_params * i)
            for i in range(3)
        )
        for vector in (self.w, self.m, self.v):
            vector.zero_()  # fresh memory costs several times the copy: that is paid here, not by the first snapshot
        self._stream: torch.cuda.Stream | None = None
        self._copied: torch.cuda.Event | None = None
        if device.type == "cuda":  # only into registered memory does the device copy beside its other work
            torch.cuda.cudart().cudaHostRegister(self.w.data_ptr() - 8, size, 0)  # type: ignore[no-untyped-call]
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def snapshot(self, state: State) -> None:
        """Copy the state in. On CUDA the copy is only under way when this returns: see `wait`."""
        HEADER.pack_into(self._map, 0, state.step, self.n_params)
        pairs = list(zip((self.w, self.m, self.v), (state.w, state.m, state.v), strict=True))
        if self._stream is None:
            for mine, theirs in pairs:
                mine.copy_(theirs)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for mine, theirs in pairs:
                mine.copy_(theirs, non_blocking=True)
            self._copied = state.read = self._stream.record_event()

    def wait(self) -> None:
        """Until the snapshot is complete: whoever reads `image` calls it first, on any thread."""
        if self._copied is not None:
            self._copied.synchronize()
