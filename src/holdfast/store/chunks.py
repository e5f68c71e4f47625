"""The body of a watch stream: chunked transfer coding taken apart, and its content cut into lines. Sans IO.

A line may be tens of megabytes long and arrive in hundreds of pieces, or a hundred lines may arrive in one piece;
every byte is looked at once. The usual case, a whole chunk that is a whole line, takes the shortest way.
"""

from __future__ import annotations

MOST_SIZE_LINE = 1_024


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
        position, end = self._finish_chunk(data, lines), len(data)
        while position < end and not self.ended:
            newline = data.find(b"\r\n", position)
            if newline < 0:
                self._rest = data[position:]
                if len(self._rest) > MOST_SIZE_LINE:
                    raise ValueError("a chunk does not begin with its size")
                break
            start = newline + 2
            if newline == position:  # the line end that closes a chunk
                position = start
                continue
            size = int(data[position:newline].partition(b";")[0], 16)
            self.ended = size == 0
            position = min(start + size, end)
            self._left = start + size - position
            self._cut(data[start:position], lines)
        return lines

    def _finish_chunk(self, data: bytes, lines: list[bytes]) -> int:
        """Takes what is left of a chunk that came in part; says where the next one begins."""
        taken = min(self._left, len(data))
        if taken:
            self._left -= taken
            self._cut(data[:taken], lines)
        return taken

    def _cut(self, piece: bytes, lines: list[bytes]) -> None:
        if not self._line and piece.find(b"\n") == len(piece) - 1 > 0:
            lines.append(piece[:-1])
            return
        head, *others = piece.split(b"\n")
        if head:
            self._line.append(head)
        for other in others:
            if self._line:
                lines.append(b"".join(self._line))
            self._line = [other] if other else []
