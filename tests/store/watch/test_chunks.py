"""The body of a watch stream, however the network cuts it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.watch.chunks import ChunkedLines


def chunked(body: bytes, sizes: list[int]) -> bytes:
    out, at = b"", 0
    for size in [*sizes, len(body)]:
        piece = body[at : at + size]
        at += len(piece)
        if piece:
            out += b"%x\r\n%s\r\n" % (len(piece), piece)
    return out + b"0\r\n\r\n"


lines = st.lists(st.binary(min_size=1, max_size=50).map(lambda b: b.replace(b"\n", b"x")), max_size=20)
cuts = st.lists(st.integers(1, 40), max_size=60)


@given(lines, cuts, cuts)
def test_lines_come_out_as_they_went_in(sent: list[bytes], chunks: list[int], reads: list[int]) -> None:
    wire = chunked(b"".join(line + b"\n" for line in sent), chunks)
    parser, received, at = ChunkedLines(), b"", 0
    for size in [*reads, len(wire)]:
        came = parser.feed(wire[at : at + size])
        assert came == b"" or came.endswith(b"\n")
        received += came
        at += size
    assert received == b"".join(line + b"\n" for line in sent)
    assert parser.ended


def test_a_line_without_its_end_is_not_a_line() -> None:
    assert ChunkedLines().feed(b"5\r\nab\ncd\r\n") == b"ab\n"


def test_a_chunk_may_say_more_than_its_size() -> None:
    assert ChunkedLines().feed(b"3;name=value\r\nab\n\r\n") == b"ab\n"


@pytest.mark.parametrize("rubbish", [b"<html>\r\n", b"x" * 2_000, b"-5\r\nabcde\r\n"])
def test_rubbish_is_refused(rubbish: bytes) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|does not begin with its size|negative"):
        ChunkedLines().feed(rubbish)
