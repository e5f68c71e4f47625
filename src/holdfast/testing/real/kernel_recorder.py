"""Samples the dataplane files of agents every 5 ms, and finds objects that were missing or different in a sample.

The file dataplane writes a new file for every batch of changes. A state that came and went between two samples is not
seen, and on a busy machine samples are further apart: a recording that finds nothing is no proof for shorter moments.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.agent.claims import ClaimKey, Shape
from holdfast.agent.dataplane.file import load
from holdfast.reconcile import Away

_POLL_S = 0.005

Kernel = Mapping[ClaimKey, Shape]


class RecordedState(NamedTuple):
    """Content of one host's file from `seconds` after the start of the recording on."""

    seconds: float
    host: str
    kernel: Kernel


def read_kernel(file: Path) -> Kernel:
    """Return what a dataplane file holds; no file is an empty kernel."""
    return {one.key: one.shape for one in load(file).objects}


@dataclass
class KernelRecorder:
    """States of the files that the samples found, from `recorded` until the end of its block."""

    files: Mapping[str, Path]
    """The file of each host."""
    expected: Mapping[str, Kernel]
    """What every host has at the start."""
    moments: list[RecordedState] = field(default_factory=list)
    samples: int = 0

    def faults(self) -> list[str]:
        """Return one sentence for each object that was missing or different in a sample, in order of time."""
        return [
            f"{moment.seconds:.3f} s: {moment.host} {'lost' if key not in moment.kernel else 'changed'} {key}"
            for moment in self.moments
            for key, shape in self.expected[moment.host].items()
            if moment.kernel.get(key) != shape
        ]

    def run(self, ended: threading.Event) -> None:
        began = time.monotonic()
        stamps: dict[str, tuple[int, int]] = {}
        while not ended.is_set():
            for host, file in self.files.items():
                try:
                    found = file.stat()
                    if stamps.get(host) != (found.st_ino, found.st_mtime_ns):
                        self.moments.append(RecordedState(time.monotonic() - began, host, read_kernel(file)))
                        stamps[host] = found.st_ino, found.st_mtime_ns
                except (OSError, Away):
                    self.moments.append(RecordedState(time.monotonic() - began, host, {}))
            self.samples += 1
            ended.wait(_POLL_S)


@contextlib.contextmanager
def recorded(files: Mapping[str, Path]) -> Iterator[KernelRecorder]:
    """Record these files until the block ends; what they hold now is expected to stay."""
    recorder = KernelRecorder(files, {host: read_kernel(file) for host, file in files.items()})
    ended = threading.Event()
    thread = threading.Thread(target=recorder.run, args=(ended,), name="kernel-recorder")
    thread.start()
    try:
        yield recorder
    finally:
        ended.set()
        thread.join()
