"""Decoder for the body of a watch stream: removes the chunked coding and returns whole lines. Sans IO.

A line may be tens of megabytes long and arrive in hundreds of pieces, or a hundred lines may arrive in one piece: every
byte is read once. The lines are returned joined; the JSON decoder splits them.
"""

from __future__ import annotations

MOST_SIZE_LINE = 1_024
LONGEST_LINE = 256 << 20
"""Bytes of one line: many times what etcd sends for a thousand transactions at once."""
_END = 2
"""Length of the line end that closes a chunk."""


class ChunkedLines:
    """Turns bytes from the socket into complete lines. `ended` once the server has finished the body."""

    def __init__(self) -> None:
        self.ended = False
        self._due = 0
        self._size_line = b""
        self._line: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> bytes:
        """Return the lines that are complete now, each with its newline. Raises `ValueError` when a chunk has no size;
        the two bytes that close a chunk are skipped unchecked."""
        if self._size_line:
            data, self._size_line = self._size_line + data, b""
        return self._whole_lines(b"".join(self._contents(data)))

    def _contents(self, data: bytes) -> list[bytes]:
        """Return the contents of the chunks, the last one as far as it has arrived; `_due` is what it still lacks."""
        position, end = self._due, len(data)
        pieces = [data[: position - _END]] if position > _END else []
        head, size = b"", 0
        while position < end and not self.ended:
            if not head or not data.startswith(head, position):  # usually it has the size of the one before
                newline = data.find(b"\r\n", position)
                if newline < 0:
                    self._size_line = data[position:]
                    if len(self._size_line) > MOST_SIZE_LINE:
                        raise ValueError("a chunk does not begin with its size")
                    position = end
                    break
                head = data[position : newline + 2]
                size = _size(head)
            self.ended = not size
            start = position + len(head)
            position = start + size + _END
            pieces.append(data[start : start + size])
        self._due = max(0, position - end)
        return pieces

    def _whole_lines(self, content: bytes) -> bytes:
        cut = content.rfind(b"\n") + 1
        if not cut:
            self._line.append(content)
            self._length += len(content)
            if self._length > LONGEST_LINE:  # protection: a line without end would take all memory
                raise ValueError(f"a line is longer than {LONGEST_LINE:,} bytes")
            return b""
        lines, self._line = b"".join([*self._line, content[:cut]]), [content[cut:]]
        self._length = len(content) - cut
        return lines


def _size(head: bytes) -> int:
    """Parse a chunk's first line, ignoring extensions."""
    size = int(head.partition(b";")[0], 16)
    if size < 0:
        raise ValueError("the size of a chunk is negative")
    return size
