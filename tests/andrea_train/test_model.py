from __future__ import annotations

import torch
import torch.nn.functional as F

from andrea_rundir.layout import PRESETS, Shape, parameters
from andrea_train import model

SHAPE = Shape(vocab_size=50, d_model=32, n_heads=4, n_layers=2, context=16)


def by_name(flat: torch.Tensor, shape: Shape) -> dict[str, torch.Tensor]:
    return {p.name: flat[p.offset : p.offset + p.size].view(*p.shape) for p in parameters(shape)}


def plain_logits(flat: torch.Tensor, shape: Shape, tokens: torch.Tensor) -> torch.Tensor:
    """The same model written out longhand: separate q, k, v, softmax by hand, no view of several matrices."""
    p = by_name(flat, shape)

    def norm(x: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + model.NORM_EPS)

    length = tokens.shape[1]
    width = shape.d_model // shape.n_heads
    x = norm(p["token_embedding"][tokens] + p["position_embedding"][:length])
    mask = torch.full((length, length), float("-inf")).triu(1)
    for i in range(shape.n_layers):
        h, heads = norm(x), []
        q, k, v = (h @ p[f"layers.{i}.{name}"].T for name in ("wq", "wk", "wv"))
        for head in range(shape.n_heads):
            part = slice(head * width, (head + 1) * width)
            scores = q[..., part] @ k[..., part].transpose(1, 2) / width**0.5 + mask
            heads.append(scores.softmax(-1) @ v[..., part])
        x = x + torch.cat(heads, -1) @ p[f"layers.{i}.wo"].T
        x = x + F.relu(norm(x) @ p[f"layers.{i}.fc1"].T) @ p[f"layers.{i}.fc2"].T
    return x @ p["head"].T


def test_the_model_is_the_one_the_docs_write_out_longhand() -> None:
    flat = model.initial(SHAPE, 1) * 5
    tokens = torch.randint(0, 50, (3, 16), generator=torch.Generator().manual_seed(2))
    ours = model.logits(model.weights(flat, SHAPE), tokens, SHAPE.n_heads)
    torch.testing.assert_close(ours, plain_logits(flat, SHAPE, tokens), rtol=1e-4, atol=1e-5)


def test_every_matrix_is_a_view_in_file_order_and_none_is_missed() -> None:
    flat = torch.arange(SHAPE.n_params, dtype=torch.float32)
    tensors = model.weights(flat, SHAPE).tensors()
    assert torch.equal(torch.cat([t.flatten() for t in tensors]), flat)
    tensors[0].zero_()
    assert flat[0] == 0


def test_a_later_token_never_changes_an_earlier_score() -> None:
    weights = model.weights(model.initial(SHAPE, 1) * 5, SHAPE)
    tokens = torch.zeros(1, 16, dtype=torch.int64)
    changed = tokens.clone()
    changed[0, 10:] = 7
    before = model.logits(weights, tokens, SHAPE.n_heads)
    after = model.logits(weights, changed, SHAPE.n_heads)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_untrained_loss_is_that_of_chance() -> None:
    shape = PRESETS["andrea-tiny"]
    weights = model.weights(model.initial(shape, 1), shape)
    windows = torch.randint(0, 257, (4, 65), generator=torch.Generator().manual_seed(1))
    losses = model.losses(weights, windows, shape.n_heads)
    assert losses.shape == (4,)
    assert abs(float(losses.mean()) - 5.549) < 0.1  # ln 257


def test_initial_weights_depend_on_the_seed_alone() -> None:
    assert torch.equal(model.initial(SHAPE, 1), model.initial(SHAPE, 1))
    assert not torch.equal(model.initial(SHAPE, 1), model.initial(SHAPE, 2))
