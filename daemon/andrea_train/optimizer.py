"""AdamW over the flat state: one fused call that clips by the global norm and skips a gradient that is not finite.

Promises that clipping and skipping need no wait for the device, and that a skipped update leaves weights, m and v
as they were, bit for bit. AdamW: Loshchilov & Hutter 2019 (arXiv 1711.05101), eps outside the root as in torch.
Imports torch only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from andrea_rundir.layout import Shape
from andrea_rundir.sections import OptimizerConfig
from andrea_train.state import State

ROW = 1024
"""Values that are summed at once."""


@dataclass(frozen=True)
class Update:
    """What an update looked like, still on the device: the gradient's norm `[]`, and 1.0 `[]` if it was skipped."""

    norm: Tensor
    skipped: Tensor


def length(vector: Tensor) -> Tensor:
    """The Euclidean norm `[]` of a vector `[n]`, by rows: on a CPU one float32 sum over 1e8 values is 1 % too small."""
    whole = vector.numel() // ROW * ROW
    rows = torch.linalg.vector_norm(vector[:whole].view(-1, ROW), dim=1)
    norm: Tensor = torch.linalg.vector_norm(torch.cat((rows, vector[whole:])))
    return norm


class AdamW:
    """Steps a `State` by a flat gradient `[n_params]`. Embeddings are not decayed, the matrices are."""

    def __init__(self, state: State, shape: Shape, config: OptimizerConfig) -> None:
        self._state = state
        self._config = config
        self.gradient = torch.zeros_like(state.w)
        # File order puts both embeddings first, so the two decay groups are two slices.
        embeddings = (shape.vocab_size + shape.context) * shape.d_model
        self._groups = ((slice(0, embeddings), 0.0), (slice(embeddings, None), config.weight_decay))
        self._count = torch.zeros((), device=state.w.device)

    def step(self, lr: float, losses: Tensor, *, scale: float = 1.0, refuse: bool = False) -> Update:
        """One update with the gradient divided by `scale`; `refuse` skips it (a spike under `spike = "skip"`).

        `losses`, float32 `[batch]`, are looked at as well: one that overflowed can leave a gradient that is finite.

        The state's step counts up whether the update was skipped or not: it is Adam's bias-correction count.
        """
        state, config = self._state, self._config
        norm = length(self.gradient) / scale
        skipped = (~(torch.isfinite(norm) & torch.isfinite(losses).all())).float()
        if refuse:
            skipped = torch.ones_like(skipped)
        state.step += 1
        # Bias correction takes the count with this update in it.
        self._count.fill_(state.step)
        shrink = torch.clamp(norm / config.grad_clip, min=1.0) * scale
        state.about_to_change()
        for part, decay in self._groups:
            torch._fused_adamw_(
                [state.w[part]],
                [self.gradient[part]],
                [state.m[part]],
                [state.v[part]],
                [],
                [self._count],
                lr=lr,
                beta1=config.betas[0],
                beta2=config.betas[1],
                weight_decay=decay,
                eps=config.eps,
                amsgrad=False,
                maximize=False,
                grad_scale=shrink,
                found_inf=skipped,
            )
        return Update(norm, skipped)
