"""Continues token sequences with a key-value cache, drawing from a keyed stream instead of generator state.

Promises that equal weights, prompts and seed give equal tokens, that no training stream is touched, and that a wish
to stop is heard between any two tokens. Writes no file.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea_train.model import Weights, norm


class Cache:
    """Keys and values of every layer so far, float32 `[layers, B, H, length, d/H]`."""

    def __init__(self, model: Weights, batch: int, length: int, n_heads: int) -> None:
        width = model.head.shape[1]
        shape = (len(model.layers), batch, n_heads, length, width // n_heads)
        self.keys = torch.empty(shape, device=model.head.device)
        self.values = torch.empty_like(self.keys)
        self.filled = 0


def extend(model: Weights, tokens: Tensor, cache: Cache, n_heads: int) -> Tensor:
    """Feed int64 `[B, k]` tokens after those in the cache; scores of the token after the last, `[B, V]`."""
    batch, new = tokens.shape
    start, end = cache.filled, cache.filled + new
    x = norm(F.embedding(tokens, model.token_embedding) + model.position_embedding[start:end])
    for i, layer in enumerate(model.layers):
        qkv = F.linear(norm(x), layer.wqkv).view(batch, new, 3, n_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        cache.keys[i, :, :, start:end], cache.values[i, :, :, start:end] = k, v
        past_k, past_v = cache.keys[i, :, :, :end], cache.values[i, :, :, :end]
        # A prompt is fed in one piece to an empty cache, later tokens one by one: causal either way.
        mixed = F.scaled_dot_product_attention(q, past_k, past_v, is_causal=new > 1)
        x = x + F.linear(mixed.transpose(1, 2).reshape(batch, new, -1), layer.wo)
        x = x + F.linear(F.relu(F.linear(norm(x), layer.fc1)), layer.fc2)
    cache.filled = end
    return F.linear(x[:, -1], model.head)


def draws(seed: int, tokens: int) -> Tensor:
    """The uniform numbers of one keyed stream, float64 `[tokens]`."""
    return torch.rand(tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@torch.no_grad()
def continue_prompts(
    model: Weights,
    prompts: Tensor,
    *,
    n_heads: int,
    uniform: Tensor,
    temperature: float,
    interrupted: Callable[[], bool],
) -> Tensor | None:
    """As many more tokens for int64 `[B, P]` prompts as `uniform` has columns, `[B, tokens]`; None when broken off.

    Inverse-transform sampling from `uniform` (float64 `[B, tokens]` in [0, 1)), on the CPU; temperature 0 takes the
    likeliest token.
    """
    batch, length = prompts.shape
    tokens = uniform.shape[1]
    cache = Cache(model, batch, length + tokens, n_heads)
    drawn = []
    feed = prompts
    for i in range(tokens):
        if interrupted():
            return None
        scores = extend(model, feed, cache, n_heads).double().cpu()
        if temperature == 0:
            choice = scores.argmax(-1, keepdim=True)
        else:
            mass = torch.softmax(scores / temperature, -1).cumsum(-1)
            choice = torch.searchsorted(mass, uniform[:, i : i + 1] * mass[:, -1:], right=True).clamp(
                max=scores.shape[-1] - 1
            )
        drawn.append(choice)
        feed = choice.to(prompts.device)
    return torch.cat(drawn, 1)
