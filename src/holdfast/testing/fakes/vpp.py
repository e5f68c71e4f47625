"""A VPP on its API socket, in this process: VIPs and servers of the lb plugin, with the answers of a real one.

It gives the answers that `tests/balancer/dataplane/vpp/recorded.jsonl` holds of a real one: return values, removed
servers and servers of deleted VIPs that stay in dumps, numbers of buckets. It can hang, die and come back empty, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from vpp_papi.vpp_papi_async import VPPApiJSONFiles

from holdfast.balancer.dataplane.vpp.flow_table import table
from holdfast.balancer.maglev.table import BackendId
from holdfast.model.base.address import address_order
from holdfast.testing.fakes.vpp_api import definitions

_HEADER = struct.Struct(">QII")
_CONNECT, _CONNECTED = 15, 16
"""The only messages with fixed numbers."""
_FIRST = 100
_OK, _UNKNOWN, _EXISTS, _LENGTH, _TYPE, _FAMILY = 0, -6, -81, -70, -73, -97
_KEPT = 0xFFFFFFFF
_ANY = 255
_GRE4, _GRE6, _L3DSR = 0, 1, 2

VipPlace = tuple[str, int, int]
"""Prefix, protocol and port."""


@dataclass
class FakeServer:
    weight: int
    removed: bool = False


@dataclass
class FakeVip:
    fields: dict[str, Any]
    servers: dict[str, FakeServer] = field(default_factory=dict)

    @property
    def encap(self) -> int:
        """Return what the VIP has: GRE for an IPv6 address that is to have L3DSR."""
        asked = int(self.fields["encap"])
        return _GRE6 if asked == _L3DSR and ":" in str(self.fields["pfx"]) else asked

    @property
    def length(self) -> int:
        return int(self.fields["new_flows_table_length"])

    def buckets(self) -> dict[str, int]:
        """Return the number of buckets of each server."""
        ids = {address: BackendId(*address_order(address), 0) for address in self.servers}
        weights = {ids[address]: one.weight for address, one in self.servers.items() if not one.removed}
        shares = _shares(tuple(sorted(weights.items())), self.length)
        return {address: shares[one] for address, one in ids.items()}


class FakeVpp:
    """`without` names messages that this VPP does not know, as an older one."""

    def __init__(self, path: Path, without: frozenset[str] = frozenset()) -> None:
        self.path = path
        self.vips: dict[VipPlace, FakeVip] = {}
        self.deleted: list[tuple[VipPlace, FakeVip]] = []
        """VIPs whose servers a real one still lists."""
        self.conf: dict[str, Any] = {
            "ip4_src_address": "255.255.255.255",
            "ip6_src_address": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "sticky_buckets_per_core": 1024,
            "flow_timeout": 40,
        }
        self.calls: list[tuple[str, dict[str, Any]]] = []
        """Requests that change something, in the order in which they came."""
        self.flushed: list[tuple[VipPlace, str]] = []
        """Servers whose flows were ended."""
        self.refused: list[tuple[str, int]] = []
        """Requests that it did not carry out, with the return value."""
        self.refuses: Iterator[int] = iter(())
        """Return values for the next new VIPs, which are not made."""
        self.hangs_at: str | None = None
        """The next request of this name makes it hang."""
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self.clients = 0
        """Connections made."""
        self.deregistered = 0
        """Connections that were ended in order."""
        self._json = definitions(without)
        bundled = resources.files("vpp_papi.data").joinpath("memclnt.api.json").read_text()
        self._messages = {**VPPApiJSONFiles.process_json_str(bundled)[0]}
        self._messages |= VPPApiJSONFiles.process_json_str(json.dumps(self._json))[0]
        self._numbers = {name: _FIRST + place for place, name in enumerate(self._messages)}
        self._names = {number: name for name, number in self._numbers.items()}
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def hangs(self) -> bool:
        """It answers nothing, and carries out what it was sent when it goes on."""
        return not self._goes_on.is_set()

    @hangs.setter
    def hangs(self, hangs: bool) -> None:
        if hangs:
            self._goes_on.clear()
        else:
            self._goes_on.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[FakeVpp]:
        await self.start()
        try:
            yield self
        finally:
            self.die()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    def die(self) -> None:
        """End at once; everything is lost."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()
        self._writers.clear()
        self.path.unlink(missing_ok=True)
        self.vips.clear()
        self.deleted.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.clients += 1
        try:
            while True:
                _, length, _ = _HEADER.unpack(await reader.readexactly(_HEADER.size))
                request = await reader.readexactly(length)
                if self.hangs_at is not None and self._names.get(int.from_bytes(request[:2], "big")) == self.hangs_at:
                    self.hangs, self.hangs_at = True, None
                await self._goes_on.wait()
                for answer in self._answers(request):
                    writer.write(_HEADER.pack(0, len(answer), 0) + answer)
                with contextlib.suppress(ConnectionError):  # the client has gone, and what it sent is carried out
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self._writers.discard(writer)
            writer.close()

    def _answers(self, packed: bytes) -> Iterator[bytes]:
        number = int.from_bytes(packed[:2], "big")
        name = "sockclnt_create" if number == _CONNECT else self._names[number]
        request = self._messages[name].unpack(packed)[0]._asdict()
        if name == "sockclnt_create":
            yield self._packed("sockclnt_create_reply", request, _CONNECTED, **self._table())
        elif name == "get_api_json":
            yield self._packed("get_api_json_reply", request, retval=0, json=json.dumps([self._json]))
        elif name == "sockclnt_delete":
            self.deregistered += 1
            yield self._packed("sockclnt_delete_reply", request, response=1)
        elif name == "control_ping":
            yield self._packed("control_ping_reply", request, retval=0)
        elif name == "lb_conf_get":
            yield self._packed("lb_conf_get_reply", request, retval=0, **self.conf)
        elif name == "lb_vip_dump":
            yield from (self._packed("lb_vip_details", request, **each) for each in self._vip_details())
        elif name == "lb_as_v2_dump":
            yield from (self._packed("lb_as_v2_details", request, **each) for each in self._server_details())
        else:
            self.calls.append((name, request))
            retval = self._changes[name](self, request)
            if retval != _OK:
                self.refused.append((name, retval))
            yield self._packed(f"{name}_reply", request, retval=retval)

    def _packed(self, name: str, request: dict[str, Any], number: int | None = None, **fields: Any) -> bytes:
        numbered = {"_vl_msg_id": self._numbers[name] if number is None else number, "context": request["context"]}
        packed: bytes = self._messages[name].pack(numbered | fields)
        return packed

    def _table(self) -> dict[str, Any]:
        entries = [
            {"index": self._numbers[name], "name": f"{name}_{message.crc[2:]}"}
            for name, message in self._messages.items()
        ]
        return {"response": 0, "index": 1, "count": len(entries), "message_table": entries}

    def _vip_details(self) -> Iterator[dict[str, Any]]:
        for (prefix, protocol, port), vip in self.vips.items():
            dscp = int(vip.fields["dscp"]) if vip.encap == _L3DSR else 0
            yield {
                "vip": {"pfx": prefix, "protocol": protocol, "port": port},
                "encap": vip.encap,
                "dscp": dscp,
                "srv_type": dscp << 24,  # a real one keeps both in one place
                "flow_table_length": vip.length & 0xFFFF,
            }

    def _server_details(self) -> Iterator[dict[str, Any]]:
        for (prefix, protocol, port), vip in [*self.vips.items(), *self.deleted]:
            buckets = vip.buckets()
            for address, server in vip.servers.items():
                yield {
                    "vip": {"pfx": prefix, "protocol": protocol, "port": port},
                    "app_srv": ip_address(address),
                    "flags": 0 if server.removed else 1,
                    "weight": server.weight,
                    "num_buckets": buckets[address],
                }

    def _set_conf(self, request: dict[str, Any]) -> int:
        new = {name: _plain(request[name]) for name in self.conf}
        new = {name: self.conf[name] if value == _KEPT else value for name, value in new.items()}
        if not _is_power_of_two(new["sticky_buckets_per_core"]):
            return _LENGTH
        self.conf = new
        return _OK

    def _change_vip(self, request: dict[str, Any]) -> int:
        place, made = _place(request), FakeVip(request)
        if request["is_del"]:
            return self._delete_vip(place)
        if (refusal := next(self.refuses, _OK)) != _OK:
            return refusal
        siblings = {port: vip for (prefix, _, port), vip in self.vips.items() if prefix == place[0]}
        if place in self.vips or 0 in siblings or (siblings and not place[2]):
            return _EXISTS
        if any(vip.encap != made.encap for port, vip in siblings.items() if port != place[2]):
            return _TYPE
        if not _is_power_of_two(made.length):
            return _LENGTH
        self.vips[place] = made
        return _OK

    def _delete_vip(self, place: VipPlace) -> int:
        vip = self.vips.pop(place, None)
        if vip is None:
            return _UNKNOWN
        for server in vip.servers.values():
            server.removed = True
        self.deleted.append((place, vip))
        return _OK

    def _change_server(self, request: dict[str, Any]) -> int:
        vip, address = self.vips.get(_place(request)), str(request["as_address"])
        if vip is None:
            return _UNKNOWN
        server = vip.servers.get(address)
        if request["is_del"]:
            if server is None:
                return _UNKNOWN
            server.removed = True  # a real one collects it up to two minutes later
            if request["is_flush"]:
                self.flushed.append((_place(request), address))
            return _OK
        if server is not None and not server.removed:
            return _EXISTS
        if ip_address(address).version != (6 if vip.encap == _GRE6 else 4):
            return _FAMILY
        vip.servers[address] = FakeServer(request["weight"])
        return _OK

    def _set_weight(self, request: dict[str, Any]) -> int:
        vip, address = self.vips.get(_place(request)), str(request["as_address"])
        if vip is None or address not in vip.servers or vip.servers[address].removed:
            return _UNKNOWN
        vip.servers[address].weight = request["weight"]
        if request["is_flush"]:
            self.flushed.append((_place(request), address))
        return _OK

    _changes: dict[str, Callable[[FakeVpp, dict[str, Any]], int]] = {  # noqa: RUF012 -- a table, never changed
        "lb_conf": _set_conf,
        "lb_add_del_vip_v2": _change_vip,
        "lb_add_del_as_v2": _change_server,
        "lb_as_set_weight": _set_weight,
    }


@lru_cache(maxsize=64)
def _shares(weights: tuple[tuple[BackendId, int], ...], length: int) -> Counter[BackendId | None]:
    return Counter(table(dict(weights), length))


def _is_power_of_two(value: int) -> bool:
    return value.bit_count() == 1


def _place(request: dict[str, Any]) -> VipPlace:
    port = request["port"]
    return str(ip_network(str(request["pfx"]), strict=False)), request["protocol"] if port else _ANY, port


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else str(value)
