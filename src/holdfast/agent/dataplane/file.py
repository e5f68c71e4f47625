"""Dataplane in a file: for the lab, and for trying the agent without root.

It outlives the agent as a kernel does, belongs to one host, and can be disturbed like a kernel: the agent notices when
the file is edited or deleted. Interfaces exist unless the file says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path

import msgspec
from google_crc32c import extend

from holdfast.agent.claims import ClaimKey, ClaimKind, LocalRoute, RemoteRoute, Shape, nexthop
from holdfast.agent.dataplane.api import ClaimChange, HostDataplaneInfo
from holdfast.model.base.time import Duration
from holdfast.reconcile import Away
from holdfast.runtime.paths import write_atomically

POLL = Duration(milliseconds=500)


class FileObject(msgspec.Struct, frozen=True):
    """One object, with its name for people."""

    name: str
    key: ClaimKey
    shape: Shape


class FileContent(msgspec.Struct, frozen=True):
    """Content of the file. `changes` counts every change ever made, so that none goes unseen."""

    changes: int = 0
    absent: tuple[str, ...] = ()
    """Interfaces that do not exist now."""
    objects: tuple[FileObject, ...] = ()


def load(path: Path) -> FileContent:
    """Load the file; no file is an empty kernel. Raises `Away`."""
    return _decoded(path, _bytes(path))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b"{}"
    except OSError as error:
        raise _unreadable(path, error) from error


def _decoded(path: Path, data: bytes) -> FileContent:
    try:
        return msgspec.json.decode(data, type=FileContent)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> Away:
    return Away("dataplane", f"{path}: {error}; delete it to start with an empty one")


def save(path: Path, content: FileContent) -> None:
    """Raise `Away`."""
    _write(path, content.changes, content.absent, content.objects)


def _write(path: Path, changes: int, absent: Sequence[str], objects: Iterable[FileObject]) -> int:
    """Write one line per object: for people, and because encoding all at once would take as much memory as the agent.
    Return the checksum of the file."""
    lines = b",\n".join(map(msgspec.json.encode, objects))
    head = b'"changes": %d, "absent": %s' % (changes, msgspec.json.encode(absent))
    data = b'{%s, "objects": [\n%s\n]}\n' % (head, lines)
    try:
        write_atomically(path, data)
    except OSError as error:
        raise Away("dataplane", f"{path} cannot be written ({error.strerror})") from error
    return int(extend(0, data))


class FileDataplane:
    name = "memory"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._absent: tuple[str, ...] = ()
        self._checksum: int | None = None
        """Checksum of the file when we last read or wrote it: another one means that another program changed it."""
        self._stamp = _stamp(path)

    def ready(self) -> str | None:
        return None

    async def read(self, keys: Collection[ClaimKey] | None = None) -> Mapping[ClaimKey, Shape]:
        found = self._load()
        wanted = None if keys is None else set(keys)
        return {one.key: one.shape for one in found.objects if wanted is None or one.key in wanted}

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        found = self._load()
        objects = {one.key: one.shape for one in found.objects}
        answers = [self._apply(objects, change) for change in changes]
        held = (FileObject(str(key), key, objects[key]) for key in sorted(objects))
        self._checksum = _write(self._path, found.changes + answers.count(None), found.absent, held)
        self._stamp = _stamp(self._path)
        return answers

    def blocked_by(self, key: ClaimKey, shape: Shape) -> str | None:
        return _missing(shape, self._absent)

    def routes_in(self, table: int) -> Set[ClaimKey]:
        """All that is in the file: no other program has routes here, so none is waited for."""
        return {one.key for one in self._load().objects}

    async def disturbed(self) -> Collection[ClaimKey] | None:
        while True:
            await asyncio.sleep(POLL.total_seconds())
            if _stamp(self._path) == self._stamp:
                continue
            before = self._checksum
            try:
                self._load()
            except Away:
                return None  # the next read reports what is wrong with it
            if self._checksum != before:
                return None

    def _load(self) -> FileContent:
        """Load the file without keeping it: it is as large as everything the agent remembers. Raises `Away`."""
        self._stamp = _stamp(self._path)
        data = _bytes(self._path)
        self._checksum = extend(0, data)
        found = _decoded(self._path, data)
        self._absent = found.absent
        return found

    def describe(self) -> HostDataplaneInfo:
        return HostDataplaneInfo("memory")

    def _apply(self, objects: dict[ClaimKey, Shape], change: ClaimChange) -> str | None:
        if change.new is None:
            _remove(objects, change.key)
            return None
        shape = change.new.value.shape
        refusal = _missing(shape, self._absent) or _without_nexthop(shape, objects)
        if refusal is None:
            objects[change.key] = shape
        return refusal


def _remove(objects: dict[ClaimKey, Shape], key: ClaimKey) -> None:
    """Remove an object; a nexthop takes its routes with it, as in a kernel."""
    objects.pop(key, None)
    if key.kind is ClaimKind.NEXTHOP:
        dependents = [
            one for one, shape in objects.items() if isinstance(shape, RemoteRoute) and nexthop(shape.via) == key
        ]
        for route in dependents:
            del objects[route]


def _without_nexthop(shape: Shape, objects: Mapping[ClaimKey, Shape]) -> str | None:
    if isinstance(shape, RemoteRoute) and nexthop(shape.via) not in objects:
        return f"its nexthop {shape.via} is not there"
    return None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Identify a state of the file: each of our writes makes a new file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _missing(shape: Shape, absent: Collection[str]) -> str | None:
    if isinstance(shape, LocalRoute) and shape.interface in absent:
        return f"interface {shape.interface} does not exist"
    return None
