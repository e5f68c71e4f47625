"""The decision log: every delete, replace and hold is one record, creates one line per batch. It survives restarts.

A ring of a few files of JSON lines in the state folder, one ring per worker: when the newest file is full, the oldest
goes. Records are written in batches with one write each; a torn last line (a crash, a full disk) is left behind and
skipped by readers. A log that cannot be written never stops the work: it is counted, and said once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import structlog

log = structlog.get_logger(__name__)

RING_BYTES = 64 << 20
FILES = 8


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
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


_encode = msgspec.json.Encoder().encode
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
        if not decisions:
            return
        text = b"".join(_encode(decision) + b"\n" for decision in decisions)
        try:
            self._append(text)
        except OSError as error:
            if self.lost == 0:
                log.error(
                    "decisions cannot be written down; the work goes on", folder=str(self._folder), error=str(error)
                )
            self.lost += len(decisions)
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


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def segments(folder: Path, worker: str) -> list[Path]:
    """The files of one worker's ring, oldest first."""
    return sorted(folder.glob(f"{worker}.{'[0-9]' * 8}.jsonl"))


def read(folder: Path, workers: Iterable[str]) -> Iterator[Decision]:
    """All decisions of these workers, each worker's oldest first. Lines that cannot be read are passed over."""
    for worker in workers:
        for path in segments(folder, worker):
            try:
                lines = path.read_bytes().splitlines()
            except FileNotFoundError:
                continue  # the ring moved on while we read
            for line in lines:
                try:
                    yield _decode(line)
                except msgspec.MsgspecError:
                    continue


def workers_in(folder: Path) -> list[str]:
    return sorted({path.name.rsplit(".", 2)[0] for path in folder.glob("*.jsonl")})


def history(folder: Path, key: str | None = None, last: int = 50) -> list[Decision]:
    """The last decisions, or the last about one key, in the order of time."""
    found = [one for one in read(folder, workers_in(folder)) if key is None or one.key == key]
    found.sort(key=lambda decision: decision.time)
    return found[-last:] if last else found
