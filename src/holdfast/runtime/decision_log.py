"""Decision log: every delete, replace and hold is one record, creates are one record per batch. It survives restarts.

Each worker has a ring of a few files of JSON lines in the state folder: when the newest file is full, the oldest is
deleted. A batch of records is one write; readers skip a torn last line (a crash, a full disk). A decision log that
cannot be written never stops reconciling: lost records are counted, and the first is logged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from holdfast.model.control.decision import Decision

__all__ = ["Decision", "DecisionLog", "decode", "history", "read", "segments", "workers_in"]

log = structlog.get_logger(__name__)

RING_BYTES = 64 << 20
FILES = 8


T = TypeVar("T")

_lines = msgspec.json.Encoder().encode_lines
_NO_KEY = b'"key":""'
"""Unique in a record: quotes inside values are escaped."""
_decode = msgspec.json.Decoder(Decision).decode


class DecisionLog:
    """Writer of one ring. Not shared between processes."""

    def __init__(self, folder: Path, worker: str, *, ring: int = RING_BYTES, files: int = FILES) -> None:
        self._folder = folder
        self._worker = worker
        self._file_bytes = ring // files
        self._files = files
        self._fd = -1
        self._size = 0
        self.lost = 0
        """Records that could not be written since the start."""

    def write(self, decisions: Sequence[Decision]) -> None:
        self._write(_lines, decisions)

    def repeat(self, decision: Decision, keys: Sequence[str]) -> None:
        """Write the same decision for each of these objects, one record each."""
        self._write(partial(_repeated, decision), keys)

    def _write(self, encode: Callable[[Sequence[T]], bytes], records: Sequence[T]) -> None:
        for text, count in _pieces(encode, records, self._file_bytes):
            try:
                self._append(text)
            except OSError as error:
                if self.lost == 0:
                    log.error(
                        "decision log cannot be written; reconciling continues",
                        folder=str(self._folder),
                        error=str(error),
                    )
                self.lost += count
                self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, text: bytes) -> None:
        if self._fd < 0 or self._size + len(text) > self._file_bytes:
            self._open(fits=len(text))
        written = os.write(self._fd, text)
        self._size += written
        if written < len(text):
            raise OSError(f"only {written} of {len(text)} bytes were written: the disk is full")

    def _open(self, fits: int) -> None:
        self.close()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths = segments(self._folder, self._worker)
        if paths and paths[-1].stat().st_size + fits <= self._file_bytes:
            path = paths[-1]
        else:
            number = int(paths[-1].suffixes[-2][1:]) + 1 if paths else 1
            path = self._folder / f"{self._worker}.{number:08d}.jsonl"
            for old in [*paths, path][: -self._files]:
                old.unlink()
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        if self._size and not _ends_with_newline(path):
            self._size += os.write(self._fd, b"\n")  # ends the torn line of a killed predecessor


def _repeated(decision: Decision, keys: Sequence[str]) -> bytes:
    before, name, after = _lines([replace(decision, key="")]).partition(_NO_KEY)
    head = before + name[:-2]
    return head + _lines(keys)[:-1].replace(b"\n", after + head) + after  # a newline in a key is escaped


def _pieces(encode: Callable[[Sequence[T]], bytes], records: Sequence[T], most: int) -> Iterator[tuple[bytes, int]]:
    """Yield the records as text that fits one file, with their number: one write for all but the largest batches."""
    if not records:
        return
    text = encode(records)
    if len(text) <= most or len(records) == 1:
        yield text, len(records)
        return
    half = len(records) // 2
    yield from _pieces(encode, records[:half], most)
    yield from _pieces(encode, records[half:], most)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def segments(folder: Path, worker: str) -> list[Path]:
    """Return the files of one ring, oldest first."""
    return sorted(folder.glob(f"{worker}.{'[0-9]' * 8}.jsonl"))


def read(path: Path) -> Iterator[Decision]:
    """Yield the decisions of one file, oldest first, and skips invalid lines."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return  # the writer deleted it meanwhile
    for line in lines:
        if (one := decode(line)) is not None:
            yield one


def decode(line: bytes) -> Decision | None:
    """Return the decision of one line; None for an invalid one."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def workers_in(folder: Path, role: str = "") -> list[str]:
    """Return the names of the rings; with a role those of its daemon, because daemons of one host share the folder."""
    names = {path.name.rsplit(".", 2)[0] for path in folder.glob("*.jsonl")}
    return sorted(name for name in names if not role or name.startswith(f"{role}."))


def history(folder: Path, key: str | None = None, last: int = 50, role: str = "") -> list[Decision]:
    """Return the last decisions, or the last ones about one key, oldest first; all of them when `last` is 0."""
    found = [one for worker in workers_in(folder, role) for one in _last(folder, worker, key, last)]
    found.sort(key=lambda decision: decision.time)
    return found[-last:]


def _last(folder: Path, worker: str, key: str | None, last: int) -> list[Decision]:
    """Read no further back than needed: a ring holds a hundred thousand records."""
    found: list[Decision] = []
    for path in reversed(segments(folder, worker)):
        found = [one for one in read(path) if key is None or one.key == key] + found
        if last and len(found) >= last:
            break
    return found[-last:]
