"""The training state, which *is* the checkpoint file: weights, m and v as flat vectors in file order.

Promises that a snapshot is three copies into one page-aligned buffer of exactly the file's bytes, allocated and
touched once (first touch of fresh pages costs many times the copy). Imports torch; writes no file.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from andrea_rundir.checkpoint import HEADER, file_size
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


class Staging:
    """One checkpoint's bytes in memory, `[header|w|m|v]`: what the disk is written from and read into."""

    def __init__(self, n_params: int, device: torch.device) -> None:
        size = file_size(n_params)
        self._device = device
        self.n_params = n_params
        self._map = image_buffer(size)
        self.image = memoryview(self._map)[:size]
        np.frombuffer(self.image, dtype=np.uint8)[:] = 0
        self.w, self.m, self.v = (
            torch.frombuffer(self._map, dtype=torch.float32, count=n_params, offset=8 + 4 * n_params * i)
            for i in range(3)
        )
        if device.type == "cuda":  # registered memory lets the device copy run beside the next forward pass
            torch.cuda.cudart().cudaHostRegister(self.w.data_ptr() - 8, size, 0)  # type: ignore[no-untyped-call]

    def snapshot(self, state: State) -> None:
        """Copy the state in; returns when the copy is complete."""
        HEADER.pack_into(self._map, 0, state.step, self.n_params)
        for mine, theirs in zip((self.w, self.m, self.v), (state.w, state.m, state.v), strict=True):
            mine.copy_(theirs, non_blocking=True)
        if state.w.is_cuda:
            torch.cuda.synchronize(state.w.device)

    def restore(self, state: State) -> None:
        """Copy the verified file in `image` out to the state."""
        state.step = HEADER.unpack_from(self._map, 0)[0]
        for mine, theirs in zip((self.w, self.m, self.v), (state.w, state.m, state.v), strict=True):
            theirs.copy_(mine)

    def weights(self) -> Tensor:
        """The weights held here, float32 `[n_params]`: what a look owed since the last start is taken at."""
        return self.w.to(self._device, copy=True)
