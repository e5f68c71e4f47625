"""The body of a watch stream: chunked transfer coding taken apart, and its content cut into lines. Sans IO.

A line may be tens of megabytes long and arrive in hundreds of pieces, or a hundred lines may arrive in one piece;
every byte is looked at once.
"""

from __future__ import annotations


class ChunkedLines:
    """Feed it what came from the socket, get the complete lines. `ended` once the server has finished the body."""

    def __init__(self) -> None:
        self.ended = False
        self._left = 0
        self._rest = b""
        self._line: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Raises `ValueError` on anything that is not chunked coding."""
        lines: list[bytes] = []
        if self._rest:
            data, self._rest = self._rest + data, b""
        position, end = 0, len(data)
        while position < end and not self.ended:
            if self._left:
                stop = min(position + self._left, end)
                self._left -= stop - position
                self._cut(data[position:stop], lines)
                position = stop
                continue
            newline = data.find(b"\n", position)
            if newline < 0:
                self._rest = data[position:]
                break
            self._size_line(data[position:newline].strip())
            position = newline + 1
        return lines

    def _size_line(self, text: bytes) -> None:
        if not text:  # the line end that closes the chunk before
            return
        self._left = int(text.partition(b";")[0], 16)
        self.ended = self._left == 0

    def _cut(self, piece: bytes, lines: list[bytes]) -> None:
        head, *others = piece.split(b"\n")
        self._line.append(head)
        for other in others:
            line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
            if line:
                lines.append(line)
            self._line = [other]
