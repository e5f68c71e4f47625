"""Observed state of hosts and endpoints, which `get` shows beside the desired one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.inventory.api import ObservedRow
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.kind import Column
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointStatusName
from holdfast.model.calico.host import HOST
from holdfast.model.fleet import observed

_PAGE = 5_000


class ObservedColumn:
    """Column STATUS of a kind; empty for kinds that nobody reports."""

    def __init__(self, kind: str, region: Region, table: SqlObserved) -> None:
        self._kind = kind
        self._region = region
        self._rows = {} if kind not in (HOST.name, ENDPOINT.name) else self._read(table)

    def columns(self) -> list[Column[Any, Any]]:
        return [Column("STATUS", lambda name, _: self._shown(name))] if self._rows else []

    def document(self, name: Any) -> Mapping[str, Any]:
        """Field `observed` of a document; empty while nothing is known."""
        doc = self._rows.get(self._key(name)) if self._rows else None
        return {} if doc is None else {"observed": msgspec.json.decode(doc)}

    def _shown(self, name: Any) -> str:
        doc = self._rows.get(self._key(name))
        if doc is None:
            return "not reported"
        if self._kind == HOST.name:
            return msgspec.json.decode(doc, type=observed.AgentSeen).words
        return msgspec.json.decode(doc, type=observed.EndpointSeen).shown

    def _key(self, name: Any) -> bytes:
        if self._kind == HOST.name:
            return AGENT_STATUS.key(self._region, name)
        return ENDPOINT_STATUS.key(self._region, EndpointStatusName.of(self._region, name))

    def _read(self, table: SqlObserved) -> Mapping[bytes, bytes]:
        return {row.key: row.doc for row in self._pages(table)}

    def _pages(self, table: SqlObserved) -> Iterator[ObservedRow]:
        is_host = self._kind == HOST.name
        kind = observed.AGENT if is_host else observed.ENDPOINT
        prefix = (AGENT_STATUS if is_host else ENDPOINT_STATUS).prefix(self._region)
        after: bytes | None = None
        while page := table.read(kind, prefix, after, _PAGE):
            yield from page
            after = page[-1].key
