"""Incremental parser of an HTTP body: finds its end, and keeps its first bytes.

The head decides the framing: chunked, a length, or until the connection closes. Only the first `limit` bytes are kept;
the body counts as ended when they are full, which bounds the cost of a flood.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_CHUNKED = re.compile(rb"^transfer-encoding:[^\r\n]*\bchunked[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,18})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]{0,1000})?\r\n")
_CHUNK_LINE = 1_024


class BodyError(Exception):
    """The body violates HTTP; the message says how."""


@dataclass(slots=True)
class Body:
    """The part of a body that has arrived."""

    limit: int
    chunked: bool = False
    left: int | None = None
    """Missing bytes of the body, or of the current chunk; None: until the connection closes."""
    content: bytearray = field(default_factory=bytearray)
    _pending: bytes = b""
    _in_chunk: bool = False

    @classmethod
    def of(cls, head: bytes, limit: int) -> Body:
        length = _LENGTH.search(head)
        if _CHUNKED.search(head):
            return cls(limit, chunked=True)
        return cls(limit, left=int(length[1]) if length else None)

    def feed(self, data: bytes, *, closed: bool) -> bool:
        """Take data. Returns whether the body has ended, or `limit` bytes are here."""
        ended = self._chunks(data) if self.chunked else self._plain(data)
        if len(self.content) >= self.limit:
            return True
        if closed and not ended and (self.chunked or self.left is not None):
            raise BodyError("closed in the middle of the body")
        return ended or closed

    def _plain(self, data: bytes) -> bool:
        if self.left is None:
            self._keep(data)
            return False
        self._keep(data[: self.left])
        self.left -= min(self.left, len(data))
        return self.left == 0

    def _chunks(self, data: bytes) -> bool:
        rest = self._pending + data
        while len(self.content) < self.limit:
            if self._in_chunk:
                rest = self._inside(rest)
                if self._in_chunk:
                    break
            head = _CHUNK.match(rest)
            if head is None:
                if b"\n" in rest or len(rest) > _CHUNK_LINE:
                    raise BodyError(f"a chunk begins with {rest[:24]!r}, which is no length")
                break
            self.left = int(head[1], 16)
            if self.left == 0:
                return True
            self._in_chunk = True
            rest = rest[head.end() :]
        self._pending = rest
        return False

    def _inside(self, rest: bytes) -> bytes:
        """Take the data of the current chunk, and its line end if it has arrived."""
        assert self.left is not None
        self._keep(rest[: self.left])
        taken = min(self.left, len(rest))
        self.left -= taken
        rest = rest[taken:]
        if self.left or len(rest) < 2:
            return rest
        if not rest.startswith(b"\r\n"):
            raise BodyError("a chunk is longer than it said")
        self._in_chunk = False
        return rest[2:]

    def _keep(self, data: bytes) -> None:
        self.content += data[: self.limit - len(self.content)]
