"""The language model as a function of one flat float32 vector: a decoder-only transformer.

Promises that a forward pass depends on nothing but the weights and the tokens, and that no weight is ever
copied: every matrix is a view of the vector, in the order of `andrea_rundir.layout`. Imports torch only.

The shape follows microgpt, the ancestor that ANDREA names (docs/adr/0003-model.md): learned positions, RMSNorm
without parameters (Zhang & Sennrich 2019, arXiv 1910.07467) after the embedding and before each block, no norm
before the head, ReLU, no biases, untied head.

Dimensions in comments: B sequences, T positions, V vocabulary, d width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea_rundir.layout import Shape, parameters

NORM_EPS = 1e-5
INIT_STD = 0.02


@dataclass(frozen=True)
class Layer:
    """The matrices of one block; wq, wk and wv lie side by side in the file, so one product serves all three."""

    wqkv: Tensor  # [3d, d]
    wo: Tensor  # [d, d]
    fc1: Tensor  # [4d, d]
    fc2: Tensor  # [d, 4d]


@dataclass(frozen=True)
class Weights:
    """Views of a flat vector, as matrices."""

    token_embedding: Tensor  # [V, d]
    position_embedding: Tensor  # [T, d]
    layers: tuple[Layer, ...]
    head: Tensor  # [V, d]

    def tensors(self) -> list[Tensor]:
        """All matrices in file order; wq, wk, wv as one."""
        inner = [t for layer in self.layers for t in (layer.wqkv, layer.wo, layer.fc1, layer.fc2)]
        return [self.token_embedding, self.position_embedding, *inner, self.head]


def weights(flat: Tensor, shape: Shape, *, trainable: bool = False) -> Weights:
    """Views of `flat` (float32 `[n_params]`); with `trainable` they are autograd leaves that share its memory."""
    d = shape.d_model

    def view(offset: int, rows: int, columns: int) -> Tensor:
        matrix = flat.detach()[offset : offset + rows * columns].view(rows, columns)
        return matrix.requires_grad_() if trainable else matrix

    offsets = {p.name: p.offset for p in parameters(shape)}
    layers = tuple(
        Layer(
            wqkv=view(offsets[f"layers.{i}.wq"], 3 * d, d),
            wo=view(offsets[f"layers.{i}.wo"], d, d),
            fc1=view(offsets[f"layers.{i}.fc1"], 4 * d, d),
            fc2=view(offsets[f"layers.{i}.fc2"], d, 4 * d),
        )
        for i in range(shape.n_layers)
    )
    return Weights(
        token_embedding=view(offsets["token_embedding"], shape.vocab_size, d),
        position_embedding=view(offsets["position_embedding"], shape.context, d),
        layers=layers,
        head=view(offsets["head"], shape.vocab_size, d),
    )


def initial(shape: Shape, seed: int) -> Tensor:
    """Fresh weights, float32 `[n_params]` on the CPU, the same for a seed on every machine.

    Normal with deviation 0.02; the two matrices of a block that write to the residual stream are scaled by
    1/sqrt(2 L), as in GPT-2 (Radford et al. 2019, section 2.3).
    """
    generator = torch.Generator().manual_seed(seed)
    flat = torch.empty(shape.n_params)
    for p in parameters(shape):
        residual = p.name.endswith((".wo", ".fc2"))
        std = INIT_STD / (2 * shape.n_layers) ** 0.5 if residual else INIT_STD
        flat[p.offset : p.offset + p.size].normal_(0.0, std, generator=generator)
    return flat


def norm(x: Tensor) -> Tensor:
    """Root-mean-square norm over the width, without parameters."""
    return F.rms_norm(x, (x.shape[-1],), eps=NORM_EPS)


def logits(model: Weights, tokens: Tensor, n_heads: int) -> Tensor:
    """Scores of the next token: int64 `[B, T]` to `[B, T, V]`."""
    batch, length = tokens.shape
    x = norm(F.embedding(tokens, model.token_embedding) + model.position_embedding[:length])
    for layer in model.layers:
        qkv = F.linear(norm(x), layer.wqkv).view(batch, length, 3, n_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each [B, H, T, d/H]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(mixed.transpose(1, 2).reshape(batch, length, -1), layer.wo)
        x = x + F.linear(F.relu(F.linear(norm(x), layer.fc1), inplace=True), layer.fc2)
    return F.linear(x, model.head)


def losses(model: Weights, windows: Tensor, n_heads: int) -> Tensor:
    """Mean cross-entropy of each sequence in nats a token: int64 `[B, T+1]` to float32 `[B]`."""
    scores = logits(model, windows[:, :-1], n_heads)
    targets = windows[:, 1:]
    each = F.cross_entropy(scores.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return each.view(targets.shape).mean(1)
