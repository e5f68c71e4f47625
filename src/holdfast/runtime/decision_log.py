"""The decision log: every delete, replace and hold is one record, creates one line per batch. It survives restarts.

A ring of a few files of JSON lines in the state folder, one ring per worker: when the newest file is full, the oldest
goes. Records are written in batches with one write each; a torn last line (a crash, a full disk) is left behind and
skipped by readers. A log that cannot be written never stops the work: it is counted, and said once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog
from msgspec.structs import replace

log = structlog.get_logger(__name__)

RING_BYTES = 64 << 20
FILES = 8


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing that was done to the world, or was not done, and why."""

    time: datetime
    worker: str
    op: str
    """delete, replace, create, hold; worker for the supervisor's own."""
    key: str
    outcome: str
    """applied, failed, held, or what happened to a worker."""
    sentence: str
    kind: str = ""
    old: str = ""
    """Who wanted what was there: source@revision."""
    new: str = ""
    revision: int = 0
    term: int = 0
    gate: str = ""
    reason: str = ""
    count: int = 1
    """How many objects the record stands for (creates: one line per batch)."""


T = TypeVar("T")

_lines = msgspec.json.Encoder().encode_lines
_NO_KEY = b'"key":""'
"""Cannot stand in a value before it: quotes in texts are escaped."""
_decode = msgspec.json.Decoder(Decision).decode


class DecisionLog:
    """The writing end. Not shared between processes."""

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
        """The same decision about each of these objects, a record each."""
        self._write(partial(_repeated, decision), keys)

    def _write(self, encode: Callable[[Sequence[T]], bytes], records: Sequence[T]) -> None:
        for text, count in _pieces(encode, records, self._file_bytes):
            try:
                self._append(text)
            except OSError as error:
                if self.lost == 0:
                    log.error(f"decisions cannot be written down in {self._folder}, the work goes on: {error}")
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
            raise OSError(f"only {written} of {len(text)} bytes fitted on the disk")

    def _open(self, fits: int) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        paths = segments(self._folder, self._worker)
        if paths and paths[-1].stat().st_size + fits <= self._file_bytes:
            path = paths[-1]
        else:
            number = int(paths[-1].suffixes[-2][1:]) + 1 if paths else 1
            path = self._folder / f"{self._worker}.{number:08d}.jsonl"
            for old in [*paths, path][: -self._files]:
                old.unlink()
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._fd).st_size
        if self._size and not _ends_with_newline(path):
            self._size += os.write(self._fd, b"\n")  # a torn line of a killed predecessor stays by itself


def _repeated(decision: Decision, keys: Sequence[str]) -> bytes:
    before, name, after = _lines([replace(decision, key="")]).partition(_NO_KEY)
    head = before + name[:-2]
    return head + _lines(keys)[:-1].replace(b"\n", after + head) + after  # a newline in a key is escaped


def _pieces(encode: Callable[[Sequence[T]], bytes], records: Sequence[T], most: int) -> Iterator[tuple[bytes, int]]:
    """The records as text that fits a file each, with how many they are: one write for all but the largest batches."""
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
    """The files of one worker's ring, oldest first."""
    return sorted(folder.glob(f"{worker}.{'[0-9]' * 8}.jsonl"))


def read(path: Path) -> Iterator[Decision]:
    """The decisions in one file of a ring, oldest first. Lines that cannot be read are passed over."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return  # the ring moved on while we read
    for line in lines:
        try:
            yield _decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue


def workers_in(folder: Path) -> list[str]:
    return sorted({path.name.rsplit(".", 2)[0] for path in folder.glob("*.jsonl")})


def history(folder: Path, key: str | None = None, last: int = 50) -> list[Decision]:
    """The last decisions, or the last about one key, in the order of time; all of them when `last` is 0."""
    found = [one for worker in workers_in(folder) for one in _last(folder, worker, key, last)]
    found.sort(key=lambda decision: decision.time)
    return found[-last:]


def _last(folder: Path, worker: str, key: str | None, last: int) -> list[Decision]:
    """Reads no further back than it has to: a ring holds a hundred thousand records."""
    found: list[Decision] = []
    for path in reversed(segments(folder, worker)):
        found = [one for one in read(path) if key is None or one.key == key] + found
        if last and len(found) >= last:
            break
    return found[-last:]
