from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir import lines


@given(st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"n")), min_size=1), st.integers(1, 40))
def test_a_file_read_from_its_end_is_the_file_in_reverse(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], block: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(b"\n".join(pieces))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        assert list(lines.back(path)) == pieces[::-1]


def test_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(lines.back(tmp_path / "none"))
