from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir.layout import MAX_PARAMS, PRESETS, Shape, parameters

shapes = st.builds(
    Shape,
    vocab_size=st.integers(1, 300),
    d_model=st.integers(1, 8).map(lambda k: 16 * k),
    n_heads=st.just(1),
    n_layers=st.integers(1, 5),
    context=st.integers(1, 300),
)


@given(shapes)
def test_parameters_tile_the_region_without_gap_or_overlap(shape: Shape) -> None:
    end = 0
    for parameter in parameters(shape):
        assert parameter.offset == end
        end += parameter.size
    assert end == shape.n_params


def test_the_order_is_the_published_one() -> None:
    shape = Shape(vocab_size=5, d_model=16, n_heads=1, n_layers=2, context=3)
    layer = [
        ("wq", (16, 16)),
        ("wk", (16, 16)),
        ("wv", (16, 16)),
        ("wo", (16, 16)),
        ("fc1", (64, 16)),
        ("fc2", (16, 64)),
    ]
    expected = [("token_embedding", (5, 16)), ("position_embedding", (3, 16))]
    expected += [(f"layers.{i}.{name}", size) for i in range(2) for name, size in layer]
    expected += [("head", (5, 16))]
    assert [(p.name, p.shape) for p in parameters(shape)] == expected


def test_wq_wk_wv_of_a_layer_are_one_matrix() -> None:
    placed = {p.name: p for p in parameters(PRESETS["andrea-tiny"])}
    d = PRESETS["andrea-tiny"].d_model
    first = placed["layers.3.wq"].offset
    assert [placed[f"layers.3.{name}"].offset - first for name in ("wk", "wv")] == [d * d, 2 * d * d]


def test_the_presets_have_the_published_numbers_of_parameters() -> None:
    assert PRESETS["andrea-12m"].n_params == 12_780_288
    assert PRESETS["andrea-120m"].n_params == 98_698_752
    assert all(shape.n_params <= MAX_PARAMS and shape.d_model % 16 == 0 for shape in PRESETS.values())
