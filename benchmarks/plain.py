"""What a user would write instead: a PyTorch model of modules, its own AdamW, its own files.

The other side of the pairs. Same shape and mathematics as `andrea_train.model`, in the usual style: a module a layer
with one projection for q, k and v, gradients in `.grad`, `clip_grad_norm_`, per-parameter fused AdamW in two groups.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from andrea_rundir.layout import Shape


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d, self.heads = shape.d_model, shape.n_heads
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
        self.norm = nn.RMSNorm(d, eps=1e-5, elementwise_affine=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        fed: Tensor = self.down(F.relu(self.up(self.norm(x))))
        return x + fed


class Plain(nn.Module):
    """Tokens int64 `[B, T+1]` to the mean loss in nats a token, `[]`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab_size, shape.d_model)
        self.positions = nn.Embedding(shape.context, shape.d_model)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.norm = nn.RMSNorm(shape.d_model, eps=1e-5, elementwise_affine=False)
        self.head = nn.Linear(shape.d_model, shape.vocab_size, bias=False)

    def forward(self, windows: Tensor) -> Tensor:
        inputs, targets = windows[:, :-1], windows[:, 1:]
        places = torch.arange(inputs.shape[1], device=windows.device)
        x = self.norm(self.tokens(inputs) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), targets.flatten())

    def load(self, flat: Tensor, shape: Shape) -> None:
        """Take weights in our file's order, float32 `[n_params]`, so that outputs can be compared."""
        from andrea_train import model

        with torch.no_grad():
            for mine, theirs in zip(self.in_file_order(), model.weights(flat, shape).tensors(), strict=True):
                mine.copy_(theirs)

    def in_file_order(self) -> list[nn.Parameter]:
        """All parameters in the order of our file."""
        modules: list[nn.Module] = [self.tokens, self.positions]
        for block in self.blocks:
            assert isinstance(block, Block)
            modules += [block.qkv, block.out, block.up, block.down]
        return [parameter for module in (*modules, self.head) for parameter in module.parameters()]


def optimizer(model: Plain) -> torch.optim.AdamW:
    """Embeddings are not decayed, the matrices are, as in ours."""
    embeddings = [model.tokens.weight, model.positions.weight]
    rest = [p for p in model.parameters() if all(p is not e for e in embeddings)]
    groups = [{"params": embeddings, "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.1}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.999), eps=1e-8, fused=True)


def filled(shape: Shape) -> tuple[Plain, torch.optim.AdamW]:
    """Model and optimizer as after some steps: moments are there, numbers are not all alike."""
    model = Plain(shape)
    adam = optimizer(model)
    block = torch.randn(1 << 20, generator=torch.Generator().manual_seed(1)).abs() * 1e-4
    for p in model.parameters():
        p.grad = block.repeat(-(-p.numel() // len(block)))[: p.numel()].view_as(p).clone()
    adam.step()
    adam.zero_grad(set_to_none=True)
    return model, adam


def contents(model: Plain, adam: torch.optim.AdamW) -> dict[str, Any]:
    """What such a user saves: 12 bytes a parameter and a few numbers."""
    return {"model": model.state_dict(), "optimizer": adam.state_dict(), "step": 1}


def durable(path: Path) -> None:
    """What `torch.save` and DCP leave out: until the folder is on disk, a power cut can take the file's name."""
    for folder in (path, path.parent):
        if folder.is_dir():
            fd = os.open(folder, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
