"""The roll: keys that can be walked over a few at a time while others come and go.

To copy the keys of a large fleet keeps everything else waiting for as long as it takes to touch each of them (N15). So
they stand in a list of their own: who comes is added at its end, who goes is struck off when the next walk passes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence


class Roll:
    """Every key stands on it once. Whoever calls `enter` and `leave` knows which are present."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._keys = list(keys)
        self._gone: set[bytes] = set()
        """Who left since the last walk and still stands there."""

    def enter(self, key: bytes) -> None:
        if key in self._gone:
            self._gone.remove(key)
        else:
            self._keys.append(key)

    def leave(self, key: bytes) -> None:
        self._gone.add(key)

    def walk(self, portion: int) -> Generator[Sequence[bytes], None, None]:
        """All that stood there when it began, but for those that have left by the time it passes; `portion` at a time.

        One at a time; one that is given up has to be closed.
        """
        keys, kept, passed, end = self._keys, 0, 0, len(self._keys)
        try:
            while passed < end:
                some = keys[passed : min(passed + portion, end)]
                staying = [key for key in some if key not in self._gone]
                self._gone.difference_update(some)
                keys[kept : kept + len(staying)] = staying
                kept, passed = kept + len(staying), passed + len(some)
                yield staying
            while passed > kept:
                start = max(kept, passed - portion)
                del keys[start:passed]
                passed = start
                yield ()
        finally:
            del keys[kept:passed]
