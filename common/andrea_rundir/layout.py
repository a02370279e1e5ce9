"""The order of parameters inside a checkpoint: fixed for ever, since the file itself cannot say it.

Pure. Standard library only: `inspect` and `status` read it without numpy or torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

MAX_PARAMS = 2_147_483_647
"""The header counts parameters in an int32."""


@dataclass(frozen=True)
class Shape:
    """The five numbers that fix a model. Norms have no parameters, nothing has a bias, the head is untied."""

    vocab_size: int
    d_model: int
    n_heads: int
    n_layers: int
    context: int

    @property
    def n_params(self) -> int:
        """2*V*d + T*d + 12*L*d*d."""
        d = self.d_model
        return 2 * self.vocab_size * d + self.context * d + 12 * self.n_layers * d * d


PRESETS = {
    "andrea-tiny": Shape(vocab_size=257, d_model=128, n_heads=4, n_layers=4, context=256),
    "andrea-12m": Shape(vocab_size=2305, d_model=384, n_heads=12, n_layers=6, context=1024),
    "andrea-120m": Shape(vocab_size=8449, d_model=768, n_heads=12, n_layers=12, context=1024),
}


@dataclass(frozen=True)
class Parameter:
    """One matrix of the model: `size` float32 values from `offset` on, row-major, in each of w, m and v."""

    name: str
    shape: tuple[int, int]
    offset: int

    @property
    def size(self) -> int:
        """Number of values."""
        return prod(self.shape)


def parameters(shape: Shape) -> list[Parameter]:
    """All matrices in file order: embeddings, then the layers, then the output head."""
    d = shape.d_model
    named: list[tuple[str, tuple[int, int]]] = [
        ("token_embedding", (shape.vocab_size, d)),
        ("position_embedding", (shape.context, d)),
    ]
    for i in range(shape.n_layers):
        named += [(f"layers.{i}.{name}", (d, d)) for name in ("wq", "wk", "wv", "wo")]
        named += [(f"layers.{i}.fc1", (4 * d, d)), (f"layers.{i}.fc2", (d, 4 * d))]
    named.append(("head", (shape.vocab_size, d)))
    placed, offset = [], 0
    for name, size in named:
        placed.append(Parameter(name, size, offset))
        offset += prod(size)
    return placed
