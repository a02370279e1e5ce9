import json
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from andrea_corpus import jsonlines

ANY_TEXT = st.text(st.characters())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | ANY_TEXT,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(ANY_TEXT, inside, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": ANY_TEXT, "content": st.none() | ANY_TEXT}, optional={"name": VALUES}), max_size=4
)
OTHERS = st.dictionaries(ANY_TEXT.filter(lambda key: key not in ("text", "messages")), VALUES, max_size=3)


@st.composite
def records(draw: st.DrawFn) -> str:
    """A line of JSON with other fields before and after the text, in one of the ways JSON can be spelt."""
    field = draw(st.fixed_dictionaries({"text": ANY_TEXT}) | st.fixed_dictionaries({"messages": MESSAGES}))
    record = {**draw(OTHERS), **field, **draw(OTHERS)}
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]))
    line = json.dumps(record, separators=separators)
    if draw(st.booleans()):
        plain = json.dumps(record, separators=separators, ensure_ascii=False)
        line = plain if plain.isprintable() else line
    return draw(st.sampled_from(["", " "])) + line


def chunked(text: str, size: int) -> Iterator[bytes]:
    return (text[i : i + size].encode() for i in range(0, len(text), size))


def read(text: str, size: int = 1000) -> list[tuple[int, str]]:
    return [(number, "".join(parts)) for number, parts in jsonlines.documents(chunked(text, size))]


def verdict(text: str, size: int, long: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]] | str:
    with monkeypatch.context() as patch:
        patch.setattr(jsonlines, "LONG", long)
        try:
            return [(number, text) for number, text in read(text, size) if text]
        except ValueError:
            return "refused"


def test_each_line_is_a_document_and_blank_ones_are_none() -> None:
    text = '{"text": "a\\nb"}\n\n  \n{"id": 7, "text": "", "x": {"text": "no"}}\r\n{"text": "c"}'
    assert read(text, 3) == [(1, "a\nb"), (4, ""), (5, "c")]


def test_messages_are_written_out() -> None:
    chat = [
        {"role": "user", "content": "Hi"},
        {"role": "tool", "content": None},
        {"role": "assistant", "content": "Yo"},
    ]
    assert read(json.dumps({"messages": chat})) == [(1, "user: Hi\n\nassistant: Yo\n\n")]


@given(st.lists(records(), min_size=1, max_size=3), st.integers(1, 50))
def test_a_long_line_reads_as_a_short_one(lines: list[str], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = verdict("\n".join(lines), size, 1 << 20, patch)
        assert verdict("\n".join(lines), size, 0, patch) == whole != "refused"


@given(records(), st.data())
@example('{"text": "\\ud83d\\ude00"}', None).via("a pair of escapes")
def test_a_spoilt_long_line_is_refused_as_a_short_one_is(line: str, data: st.DataObject | None) -> None:
    spoilt, size = line, 1
    if data is not None:
        at, size = data.draw(st.integers(0, len(line))), data.draw(st.integers(1, 20))
        spoilt = line[:at] + data.draw(st.sampled_from(["", '"', "}", ",", "\\", "\\u12", "x", "[", "1", "\t"]))
        if data.draw(st.booleans()):
            spoilt += line[at + 1 :]
    with pytest.MonkeyPatch.context() as patch:
        assert verdict(spoilt, size, 0, patch) == verdict(spoilt, size, 1 << 20, patch)


WRONG = {
    '{"text": "cut of': "nterminated string|ends inside a string",
    "[1]": "not a JSON object",
    '{"id": 1, "body": "x"}': "neither text nor messages, but id, body",
    '{"text": "a", "messages": []}': "both text and messages",
    '{"text": 5}': "text is not a string",
    '{"messages": {}}': "messages is not a list",
    '{"messages": [{"content": "x"}]}': "a message without a role",
    '{"messages": [{"role": "user", "content": [1]}]}': "the content of a message is not text",
    '{"x": ' + "[" * 100_000: "nested too deep",
}


@pytest.mark.parametrize("line", WRONG)
@pytest.mark.parametrize("long", [0, 1 << 20])
def test_what_is_wrong_with_a_line_is_said(line: str, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonlines, "LONG", long)
    with pytest.raises(ValueError, match=WRONG[line]):
        read('{"text": "good"}\n' + line)


def test_a_role_after_much_content_is_refused_in_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = '{"messages": [{"content": "xyz", "role": "user"}]}'
    monkeypatch.setattr(jsonlines, "LONG", 0)
    assert read(line, 1) == [(1, "user: xyz\n\n")]
    monkeypatch.setattr(jsonlines, "HELD", 2)
    with pytest.raises(ValueError, match="role must stand before"):
        read(line)
