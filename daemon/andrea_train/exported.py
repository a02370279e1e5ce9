"""An ANDREA language model in one file: needs torch and safetensors, nothing else.

    import torch, model
    net = model.load(".")                        # the folder with config.json and model.safetensors
    scores = net(torch.tensor([[0, 1, 2]]))      # ids [batch, length] to scores of the next id
    ids = net.generate([0], 100)                 # 0 stands here for config.json's bos_token_id

`tokenizer.json` is for the `tokenizers` library: Tokenizer.from_file("tokenizer.json").encode(text).ids starts with the
BOS that stands before every document in training; .decode(ids) gives text. Everything is float32.

A decoder-only transformer: learned positions, root-mean-square norms without parameters after the embedding and
before each block (none before the head), ReLU, no biases, untied head.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn


class Block(nn.Module):
    """One layer; every matrix is [out, in]."""

    def __init__(self, d: int, n_heads: int, eps: float) -> None:
        super().__init__()
        self.n_heads, self.eps = n_heads, eps
        self.wq, self.wk, self.wv, self.wo = (nn.Parameter(torch.empty(d, d)) for _ in range(4))
        self.fc1, self.fc2 = nn.Parameter(torch.empty(4 * d, d)), nn.Parameter(torch.empty(d, 4 * d))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, d] to the same."""
        batch, length, d = x.shape
        h = F.rms_norm(x, (d,), eps=self.eps)
        q, k, v = (
            F.linear(h, w).view(batch, length, self.n_heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(mixed.transpose(1, 2).reshape(batch, length, d), self.wo)
        h = F.rms_norm(x, (d,), eps=self.eps)
        return x + F.linear(F.relu(F.linear(h, self.fc1)), self.fc2)


class Model(nn.Module):
    """The whole model; parameters are named as in model.safetensors."""

    def __init__(
        self, vocab_size: int, d_model: int, n_heads: int, n_layers: int, context: int, norm_eps: float
    ) -> None:
        super().__init__()
        self.context, self.eps = context, norm_eps
        self.token_embedding = nn.Parameter(torch.empty(vocab_size, d_model))
        self.position_embedding = nn.Parameter(torch.empty(context, d_model))
        self.layers = nn.ModuleList(Block(d_model, n_heads, norm_eps) for _ in range(n_layers))
        self.head = nn.Parameter(torch.empty(vocab_size, d_model))

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of the next token: int64 [batch, length <= context] to float32 [batch, length, vocab]."""
        x = F.embedding(ids, self.token_embedding) + self.position_embedding[: ids.shape[1]]
        x = F.rms_norm(x, (x.shape[-1],), eps=self.eps)
        for layer in self.layers:
            x = layer(x)
        return F.linear(x, self.head)

    @torch.no_grad()
    def generate(
        self, ids: list[int], count: int, temperature: float = 0.8, generator: torch.Generator | None = None
    ) -> list[int]:
        """`count` more ids after `ids`, which must not be empty; temperature 0 takes the likeliest each time."""
        ids = list(ids)
        for _ in range(count):
            scores = self(torch.tensor([ids[-self.context :]], device=self.head.device))[0, -1]
            if temperature == 0:
                ids.append(int(scores.argmax()))
            else:
                chances = torch.softmax(scores.double() / temperature, -1)
                ids.append(int(torch.multinomial(chances, 1, generator=generator)))
        return ids


def load(folder: str | Path) -> Model:
    """The model in `folder`, ready to use."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    names = ("vocab_size", "d_model", "n_heads", "n_layers", "context", "norm_eps")
    net = Model(**{name: config[name] for name in names})
    net.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return net.eval()
