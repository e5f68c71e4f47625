"""A VPP on its API socket, in this process: VIPs and servers of the lb plugin, with the answers of a real one.

Where a real VPP runs, the same tests run against it. Known from there: return values, removed servers that stay in
dumps, dumps that ignore their filter. It can hang, die and come back empty, as a real one does.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import resources
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from vpp_papi.vpp_papi_async import VPPApiJSONFiles

from holdfast.testing.fakes.vpp_api import definitions

_HEADER = struct.Struct(">QII")
_CONNECT, _CONNECTED = 15, 16
"""The only messages with fixed numbers."""
_FIRST = 100
_OK, _UNKNOWN, _EXISTS, _LENGTH = 0, -6, -81, -70

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


class FakeVpp:
    """`without` names messages that this VPP does not know, as an older one."""

    def __init__(self, path: Path, without: frozenset[str] = frozenset()) -> None:
        self.path = path
        self.vips: dict[VipPlace, FakeVip] = {}
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
        self.hangs = False
        self._json = definitions(without)
        bundled = resources.files("vpp_papi.data").joinpath("memclnt.api.json").read_text()
        self._messages = {**VPPApiJSONFiles.process_json_str(bundled)[0]}
        self._messages |= VPPApiJSONFiles.process_json_str(json.dumps(self._json))[0]
        self._numbers = {name: _FIRST + place for place, name in enumerate(self._messages)}
        self._names = {number: name for name, number in self._numbers.items()}
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @asynccontextmanager
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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                _, length, _ = _HEADER.unpack(await reader.readexactly(_HEADER.size))
                request = await reader.readexactly(length)
                if not self.hangs:
                    for answer in self._answers(request):
                        writer.write(_HEADER.pack(0, len(answer), 0) + answer)
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
            yield self._packed(f"{name}_reply", request, retval=self._changes[name](self, request))

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
            yield {
                "vip": {"pfx": prefix, "protocol": protocol, "port": port},
                "encap": vip.fields["encap"],
                "dscp": vip.fields["dscp"],
                "flow_table_length": vip.fields["new_flows_table_length"] & 0xFFFF,
            }

    def _server_details(self) -> Iterator[dict[str, Any]]:
        for (prefix, protocol, port), vip in self.vips.items():
            for address, server in vip.servers.items():
                yield {
                    "vip": {"pfx": prefix, "protocol": protocol, "port": port},
                    "app_srv": ip_address(address),
                    "flags": 0 if server.removed else 1,
                    "weight": server.weight,
                }

    def _set_conf(self, request: dict[str, Any]) -> int:
        self.conf = {name: _plain(request[name]) for name in self.conf}
        return _OK

    def _change_vip(self, request: dict[str, Any]) -> int:
        place, length = _place(request), request["new_flows_table_length"]
        if request["is_del"]:
            return _UNKNOWN if self.vips.pop(place, None) is None else _OK
        if not length or length & (length - 1):
            return _LENGTH
        if place in self.vips:
            return _EXISTS
        self.vips[place] = FakeVip(request)
        return _OK

    def _change_server(self, request: dict[str, Any]) -> int:
        vip, address = self.vips.get(_place(request)), str(request["as_address"])
        if vip is None:
            return _UNKNOWN
        server = vip.servers.get(address)
        if request["is_del"]:
            if server is None or server.removed:
                return _UNKNOWN
            server.removed = True  # a real one collects it up to two minutes later
            if request["is_flush"]:
                self.flushed.append((_place(request), address))
            return _OK
        if server is not None and not server.removed:
            return _EXISTS
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


def _place(request: dict[str, Any]) -> VipPlace:
    return str(ip_network(str(request["pfx"]), strict=False)), request["protocol"], request["port"]


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else str(value)
