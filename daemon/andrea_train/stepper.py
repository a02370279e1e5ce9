"""One training step: a batch to its gradient, the gradient to an update of the state, and the step's figures.

Promises that an update is a function of state, batch and learning rate. Reads the figures back once, at the end, unless
the update itself hangs on them. Writes no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from andrea_train import device as devices
from andrea_train import model
from andrea_train.feed import Batch
from andrea_train.optimizer import AdamW
from andrea_train.state import State

Losses = Callable[[model.Weights, Tensor, int], Tensor]
"""Weights, windows int `[n, context + 1]` and the number of heads to the loss of each window, nats a token `[n]`."""


@dataclass(frozen=True)
class Taken:
    """What came of a step: the loss of each sequence in nats a token, the norm of the gradient, whether the update was
    left out."""

    each: list[float]
    norm: float
    skipped: bool

    @property
    def loss(self) -> float:
        """The mean over the sequences."""
        return sum(self.each) / len(self.each)

    @property
    def finite(self) -> bool:
        """Whether loss and gradient are numbers."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class Stepper:
    """Takes steps on one device in one precision."""

    def __init__(
        self,
        device: torch.device,
        precision: str,
        state: State,
        optimizer: AdamW,
        losses: Losses,
        *,
        micro_batch: int,
        loss_scale: float,
    ) -> None:
        """`micro_batch`: sequences a pass, which must divide the batch; `loss_scale` counts in fp16 alone."""
        self._device, self._precision, self._micro_batch = device, precision, micro_batch
        self._scale = loss_scale if precision == "fp16" else 1.0
        self._optimizer, self._losses, self._n_heads = optimizer, losses, state.shape.n_heads
        self._leaves = model.weights(state.w, state.shape, trainable=True)
        self._gradients = model.weights(optimizer.gradient, state.shape).tensors()

    def take(
        self,
        batch: Batch,
        lr: float,
        hear: Callable[[], None],
        refuse: Callable[[list[float]], bool] | None,
        meanwhile: Callable[[], None],
    ) -> Taken:
        """Update the state by one batch. `hear` is called after every micro-batch; `refuse`, if given, is shown the
        losses first and may have the update left out; `meanwhile` is called while the device is at work."""
        losses = self._gradient(batch, hear)
        refused = refuse is not None and refuse(losses.tolist())
        update = self._optimizer.step(lr, losses, scale=self._scale, refuse=refused)
        meanwhile()
        *each, norm, skipped = torch.cat([losses, update.norm[None], update.skipped[None]]).tolist()
        return Taken(each, norm, skipped > 0)

    def _gradient(self, batch: Batch, hear: Callable[[], None]) -> Tensor:
        """Fill the optimizer's gradient; the loss of each sequence, float32 `[batch]`, on the device."""
        windows, parts = torch.from_numpy(batch.windows), []
        if self._device.type == "cuda":
            windows = windows.pin_memory().to(self._device, non_blocking=True)
        for start in range(0, len(windows), self._micro_batch):
            with devices.autocast(self._device, self._precision):
                part = self._losses(self._leaves, windows[start : start + self._micro_batch], self._n_heads)
            total = part.sum() * (self._scale / len(windows))
            gradients = torch.autograd.grad(total, self._leaves.tensors())
            if start == 0:
                torch._foreach_copy_(self._gradients, list(gradients))
            else:
                torch._foreach_add_(self._gradients, list(gradients))
            parts.append(part.detach())
            hear()
        return torch.cat(parts)
