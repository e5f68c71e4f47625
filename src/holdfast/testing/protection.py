"""Replaces a protection, and records that the replacement was called. Needs no pytest: Neutron's environment has none.

A `Removal` is installed in the process of the test and, from the environment, in every Python process that the test
starts. Each process writes one line to the removal's record when its stand-in is called for the first time: a removal
that was never reached proves nothing, whatever went wrong meanwhile.

    removed   the stand-in takes the protection's place
    placebo   the stand-in calls the original: what fails now fails because of the replacing
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

VARIABLE = "FAULT_TEST_REMOVES"
_longest_wait: float | None = None
CALLED = "called"
ARMED = "armed"


@dataclass(frozen=True, slots=True)
class Removal:
    """The protection that a run goes without, what stands in for it, and where its calls are recorded."""

    without: str
    """`module:function` or `module:Class.method`."""
    record: str
    """Path of the file that takes a line from each process that called the stand-in."""
    returns: object = None
    """What the stand-in returns; plain JSON. Not used with `by`."""
    by: str | None = None
    """The function that stands in, as `module:function`."""
    placebo: bool = False
    """The stand-in calls the original."""
    waits: bool = False
    """The original stays in force until the test has armed the scenario."""

    def encode(self) -> str:
        """Return the text that another process installs this removal from."""
        return json.dumps(asdict(self))

    def has_happened(self, event: str) -> bool:
        """Return True if a process recorded this event."""
        return event in Path(self.record).read_text(encoding="utf-8").splitlines()

    def note(self, event: str) -> None:
        """Append the event to the record, in one write: several processes may do so at a time. A process that outlives
        its test finds no record any more."""
        try:
            record = os.open(self.record, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            return
        try:
            os.write(record, f"{event}\n".encode())
        finally:
            os.close(record)


def patience(limit: float) -> float:
    """Return how many seconds to wait for a condition that may take `limit`. What a test reaches with its protection in
    some time, it does not reach without it in several times that: no need to wait for the whole limit."""
    return limit if _longest_wait is None else min(limit, _longest_wait)


@contextlib.contextmanager
def waiting_at_most(longest: float | None) -> Iterator[None]:
    """Shorten the waits of the block; None leaves them."""
    global _longest_wait
    before, _longest_wait = _longest_wait, longest
    try:
        yield
    finally:
        _longest_wait = before


def decode_removal(text: str) -> Removal:
    """Return the removal that `encode` has written."""
    return Removal(**json.loads(text))


def replacement(removal: Removal) -> Any:
    """Return a context manager that keeps the protection replaced in this process. Fails if there is no such thing."""
    owner, name = _find(removal.without)
    original = inspect.getattr_static(owner, name)
    stand_in: object = None
    if removal.by is not None:
        other, given = _find(removal.by)
        stand_in = getattr(other, given)
    return patch.object(owner, name, _recorded(removal, original, stand_in))


def _recorded(removal: Removal, original: Any, stand_in: Any) -> Any:
    """Return what takes the original's place: recorded, and of the same kind."""
    if isinstance(original, property):
        body = stand_in.fget if isinstance(stand_in, property) else stand_in
        return property(_calling(removal, original.fget, body))
    if isinstance(original, (staticmethod, classmethod)):
        return type(original)(_calling(removal, original.__func__, stand_in))
    return _calling(removal, original, stand_in)


def _calling(removal: Removal, original: Any, stand_in: Any) -> Callable[..., Any]:
    noted_in = 0
    is_armed = not removal.waits

    @functools.wraps(original)
    def in_its_place(*args: Any, **kwargs: Any) -> Any:
        nonlocal noted_in, is_armed
        if not is_armed:
            is_armed = removal.has_happened(ARMED)
            if not is_armed:
                return original(*args, **kwargs)
        if noted_in != os.getpid():  # each process, also a forked one, says so once
            noted_in = os.getpid()
            removal.note(CALLED)
        if removal.placebo:
            return original(*args, **kwargs)
        return removal.returns if stand_in is None else stand_in(*args, **kwargs)

    return in_its_place


def _find(place: str) -> tuple[Any, str]:
    """Return the object that has this attribute, and its name. Fails where it does not exist."""
    module, _, path = place.partition(":")
    *outer, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    inspect.getattr_static(owner, name)
    return owner, name
