"""Remembered fields: what a dataplane can set and not read, kept in a file of the state folder.

They are noted after the dataplane has made a change. A process killed in between finds the older value, and makes the
change again; noted before, a change that was never made would count as made. A lost or unreadable file makes the fields
unknown, which equals whatever is wanted. The VIPs in it are those that this balancer wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog

from holdfast.balancer.vip import NO_BACKEND, Value, Vip, VipKey, VipSettings, backend_from, shown, vip_from
from holdfast.reconcile import Change
from holdfast.runtime.paths import write_atomically

log = structlog.get_logger(__name__)

Fields = dict[str, bool | None]


class _Vip(msgspec.Struct):
    """Fields of a VIP, and those of its entries by ADDRESS:PORT."""

    settings: Fields = {}
    entries: dict[str, Fields] = {}


class RememberedFields:
    """The fields of these names, by object. Not read again: one process writes the file."""

    def __init__(self, path: Path, names: frozenset[str]) -> None:
        self._path = path
        self._names = names
        self._known = self._load()
        self._is_saved = True

    @property
    def vips(self) -> frozenset[Vip]:
        return frozenset(key.vip for key in self._known)

    def merged(self, held: Mapping[VipKey, Value]) -> dict[VipKey, Value]:
        """Fill in what is remembered of what the dataplane holds."""
        return {key: self._merged(key, value) for key, value in held.items()}

    def note(self, changes: Iterable[Change[VipKey, Value]]) -> None:
        """Note changes that the dataplane has made."""
        before = dict(self._known)
        for change in changes:
            if change.new is not None:
                value = change.new.value
                self._known[change.key] = {name: getattr(value, name) for name in self._names if hasattr(value, name)}
            elif change.key.backend == NO_BACKEND:
                self._known = {key: known for key, known in self._known.items() if key.vip != change.key.vip}
            else:
                self._known.pop(change.key, None)
        if self._known != before or not self._is_saved:
            self._save()

    def _merged(self, key: VipKey, value: Value) -> Value:
        known = self._known.get(key, {})
        if isinstance(value, VipSettings):
            return value if value.sticky is not None else replace(value, sticky=known.get("sticky"))
        return value if value.kill is not None else replace(value, kill=known.get("kill"))

    def _load(self) -> dict[VipKey, Fields]:
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Vip])
            return dict(_objects(content))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning(
                "remembered fields cannot be read; they count as unknown", path=str(self._path), error=str(error)
            )
            return {}

    def _save(self) -> None:
        content: dict[str, _Vip] = {}
        for key, known in sorted(self._known.items(), key=lambda pair: pair[0]):
            vip = content.setdefault(str(key.vip), _Vip())
            if key.backend == NO_BACKEND:
                vip.settings = known
            else:
                vip.entries[shown(key.backend)] = known
        try:
            write_atomically(self._path, msgspec.json.encode(content))
            self._is_saved = True
        except OSError as error:
            self._is_saved = False
            log.warning("cannot save remembered fields; retrying with the next change", error=error.strerror)


def _objects(content: Mapping[str, _Vip]) -> Iterable[tuple[VipKey, Fields]]:
    for name, vip in content.items():
        at = vip_from(name)
        yield VipKey(at), vip.settings
        yield from ((VipKey(at, backend_from(one)), known) for one, known in vip.entries.items())
