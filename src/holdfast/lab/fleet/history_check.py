"""History checker: checks every write of a region and every change of its leader, in the store's own order.

It finds a write under a term that did not lead at that revision (so also any write of an old term after the new one
began), two writers in one term, terms that do not grow, and numbers that repeat. Nothing is sampled: etcd keeps each
revision until it is compacted, and all of them are read.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.lab.fleet.fenced_writer import WriterEntry, writes_prefix
from holdfast.model.base.keys import own
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER
from holdfast.store.api import prefix_end

_TIMEOUT_S = 20.0
_SERVES_WITHIN_S = 60.0
_RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The leader key was created (its term) or deleted (0)."""

    revision: int
    term: int


@dataclass(frozen=True, slots=True)
class AcceptedWrite:
    """One accepted write."""

    revision: int
    entry: WriterEntry


History = Sequence[LeaderChange | AcceptedWrite]


@dataclass
class _Checker:
    """State of the check at one point of the history."""

    term: int = 0
    newest: int = 0
    writers: dict[int, str] = field(default_factory=dict)
    seen: set[WriterEntry] = field(default_factory=set)

    def on_leader(self, change: LeaderChange) -> Iterator[str]:
        if change.term and change.term != self.term and change.term <= self.newest:
            yield f"revision {change.revision}: term {change.term} began after term {self.newest}"
        self.term = change.term
        self.newest = max(self.newest, change.term)

    def on_write(self, write: AcceptedWrite) -> Iterator[str]:
        entry, wrote = write.entry, f"revision {write.revision}: {write.entry.server} wrote under term"
        if entry.term != self.term:
            led = f"term {self.term} led" if self.term else "there was no leader"
            yield f"{wrote} {entry.term}, but {led}"
        if self.writers.setdefault(entry.term, entry.server) != entry.server:
            yield f"{wrote} {entry.term}, which is {self.writers[entry.term]}'s"
        # Order is not checked: a write whose answer was lost may land after later ones, when a frozen member wakes.
        if entry in self.seen:
            yield f"{wrote} {entry.term} its number {entry.number} again"
        self.seen.add(entry)


def violations(history: History) -> Sequence[str]:
    """Return everything that is wrong with a history, one sentence each."""
    checker = _Checker()
    return [
        sentence
        for event in history
        for sentence in (checker.on_leader(event) if isinstance(event, LeaderChange) else checker.on_write(event))
    ]


def writes_after(history: History, revision: int, server: str) -> int:
    """Count the writes of that server that were accepted after a revision."""
    return sum(
        1
        for one in history
        if isinstance(one, AcceptedWrite) and one.revision > revision and one.entry.server == server
    )


def read_history(url: str, region: Region) -> History:
    """Read all of a region's history up to now from one etcd member."""
    parsed = (_parse(key, event, region) for key, event in read_events(url, own("")(region).encode()))
    return [one for one in parsed if one is not None]


def read_events(url: str, prefix: bytes) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield every event under a prefix up to now, in order, in the JSON of etcd's gateway."""
    marker = prefix + b"lab/marker"
    last = _put(url, marker)
    for event in _events(url, prefix):
        key = base64.b64decode(event["kv"]["key"])
        if key == marker and int(event["kv"]["mod_revision"]) >= last:
            return
        if key != marker:
            yield key, event


def _parse(key: bytes, event: dict[str, Any], region: Region) -> LeaderChange | AcceptedWrite | None:
    revision, deleted = int(event["kv"]["mod_revision"]), event.get("type") == "DELETE"
    if key == LEADER.key(region, "leader"):
        return LeaderChange(revision, 0 if deleted else int(event["kv"]["create_revision"]))
    if key.startswith(writes_prefix(region)) and not deleted:
        return AcceptedWrite(revision, msgspec.json.decode(base64.b64decode(event["kv"]["value"]), type=WriterEntry))
    return None


def _events(url: str, prefix: bytes) -> Iterator[dict[str, Any]]:
    create = {"key": _text(prefix), "range_end": _text(prefix_end(prefix)), "start_revision": "1"}
    connection = _connect(url)
    try:
        connection.request("POST", "/v3/watch", json.dumps({"create_request": create}))
        stream = connection.getresponse()
        while line := stream.readline():
            result = json.loads(line)["result"]
            if result.get("canceled"):
                raise RuntimeError(f"etcd has compacted a part of the history: {result}")
            yield from result.get("events", ())
    finally:
        connection.close()


def _put(url: str, key: bytes) -> int:
    """Write an empty value and return its revision, as soon as the member serves writes: it may have no leader yet."""
    deadline = time.monotonic() + _SERVES_WITHIN_S
    while True:
        try:
            answer = _post(url, "/v3/kv/put", {"key": _text(key), "value": ""})
            if "header" in answer:
                return int(answer["header"]["revision"])
            problem = str(answer)
        except OSError as error:
            problem = str(error)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{url} has served no write for {_SERVES_WITHIN_S:g} s: {problem}")
        time.sleep(_RETRY_S)


def _post(url: str, path: str, body: dict[str, str]) -> dict[str, Any]:
    connection = _connect(url)
    try:
        connection.request("POST", path, json.dumps(body))
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
    finally:
        connection.close()


def _connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()
