"""Intent file: what operators asked a worker for at run time, in a small file of the state folder.

The file is written before an intent takes effect, so that a restart does not undo it. An unreadable file does not
count as an empty one: it may hold a pause.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.config.schema.scalars import duration
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.paths import RolePaths, write_atomically


class WorkerIntent(msgspec.Struct, frozen=True):
    """One intent of an operator. Its times are wall-clock times, because they must survive a reboot."""

    who: str
    why: str
    at: datetime
    until: datetime | None = None

    @property
    def lasting(self) -> str:
        """Continuation of a sentence: " until 12:00:00Z", or nothing."""
        return "" if self.until is None else f" until {self.until:%H:%M:%SZ}"

    def is_over(self, wall: datetime) -> bool:
        return self.until is not None and self.until <= wall


class WorkerIntents(msgspec.Struct, frozen=True, omit_defaults=True):
    pause: WorkerIntent | None = None
    allow: WorkerIntent | None = None
    forgotten: dict[str, WorkerIntent] = {}


def request_intent(request: Request, who: Who, clock: Clock) -> WorkerIntent:
    """Return the intent in a request. Raises `Declined` without a reason, or for an invalid duration."""
    why, within = request.args.get("reason"), request.args.get("for")
    if not isinstance(why, str) or not why.strip():
        raise Declined("a reason is needed: give it with --reason")
    until = None
    if within is not None:
        try:
            until = clock.wall() + duration(str(within))
        except (ValueError, OverflowError) as error:
            raise Declined(f"--for {within}: {error}") from error
    return WorkerIntent(who.name, why.strip(), clock.wall(), until)


class IntentsUnreadable(RuntimeError):
    """The intents are not known. The message is for the operator."""


class IntentFile:
    """Intents of one worker, in one file."""

    def __init__(self, paths: RolePaths, worker: str) -> None:
        self._path: Path = paths.state / "intents" / f"{paths.role}.{worker}.json"
        self.intents = self._read()

    def write(self, intents: WorkerIntents) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(intents))
        self.intents = intents

    def _read(self) -> WorkerIntents:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=WorkerIntents)
        except FileNotFoundError:
            return WorkerIntents()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            sentence = f"{self._path} cannot be read ({error}): fix it, or delete it to drop all intents"
            raise IntentsUnreadable(sentence) from error
