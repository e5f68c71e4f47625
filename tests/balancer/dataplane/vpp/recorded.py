"""Requests to the lb plugin, and the answers of a real VPP to them, which the one in this process must give too.

    python -m tests.balancer.dataplane.vpp.recorded API_SOCKET

records the answers of a VPP that was just started, in `recorded.jsonl`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.balancer.dataplane.vpp.connection import VppConnection, VppRequest

FILE = Path(__file__).with_name("recorded.jsonl")
_FOUR, _SIX = "192.0.2.1/32", "2001:db8::1/128"
_GRE4, _GRE6, _L3DSR = 0, 1, 2
_NOT_COMPARED = {"context", "in_use_since"}
_DUMPS = ("lb_vip_dump", "lb_as_v2_dump")


def _vip(prefix: str, port: int = 80, protocol: int = 6, **fields: Any) -> VppRequest:
    place = {"pfx": prefix, "protocol": protocol, "port": port}
    return VppRequest("lb_add_del_vip_v2", place | {"new_flows_table_length": 1024} | fields)


def _server(address: str, prefix: str = _FOUR, port: int = 80, **fields: Any) -> VppRequest:
    place = {"pfx": prefix, "protocol": 6 if port else 255, "port": port, "as_address": address}
    return VppRequest("lb_add_del_as_v2", place | {"weight": 100} | fields)


def _weight(address: str, weight: int, prefix: str = _FOUR, **fields: Any) -> VppRequest:
    place = {"pfx": prefix, "protocol": 6, "port": 80, "as_address": address}
    return VppRequest("lb_as_set_weight", place | {"weight": weight} | fields)


def _script() -> Iterator[VppRequest]:
    contents = [VppRequest(name) for name in _DUMPS]
    conf = VppRequest("lb_conf_get")
    sources = {"ip4_src_address": "198.51.100.7", "ip6_src_address": "2001:db8::7"}
    yield from (*contents, conf)
    yield from (VppRequest("lb_conf", sources | {"sticky_buckets_per_core": 2048, "flow_timeout": 50}), conf)
    yield from (VppRequest("lb_conf", sources | {"ip4_src_address": "198.51.100.8"}), conf)
    yield from (VppRequest("lb_conf", sources | {"sticky_buckets_per_core": 1000}), conf)
    # VIPs: what is refused, and what becomes something else
    yield from (_vip(_FOUR), _vip(_FOUR), _vip(_FOUR, new_flows_table_length=2048), _vip(_FOUR, 8080, 17))
    yield from (_vip(_FOUR, 443, encap=_L3DSR, dscp=3), _vip(_FOUR, 443), _vip(_FOUR, 0, 255))
    yield from (_vip("192.0.2.2/32", new_flows_table_length=1000), _vip("192.0.2.3/32", 0, 6, src_ip_sticky=True))
    yield from (_vip("192.0.2.3/32", 80), _vip("192.0.2.4/32", encap=_L3DSR, dscp=10))
    yield from (_vip(_SIX, encap=_GRE6), _vip("2001:db8::2/128", encap=_L3DSR, dscp=4), _vip("203.0.113.77/24", 53, 17))
    yield from contents
    # servers
    yield from (_server("10.0.0.1"), _server("10.0.0.2", weight=50), _server("10.0.0.1"), _server("2001:db8:7::1"))
    yield from (_server("10.0.0.1", "192.0.2.99/32"), _server("10.0.0.1", port=81))
    yield from (_server("2001:db8:7::1", _SIX), _server("2001:db8:7::2", _SIX, weight=1), _server("10.0.0.1", _SIX))
    yield from (_server("10.0.0.9", "192.0.2.4/32", weight=0), _server("10.0.0.9", "192.0.2.3/32", 0))
    yield from contents
    # weights
    yield from (_weight("10.0.0.2", 100), _weight("10.0.0.2", 0, is_flush=True), _weight("10.0.0.77", 1))
    yield from (_weight("10.0.0.1", 1, "192.0.2.99/32"), *contents)
    # what is removed stays in dumps until it is collected
    gone = _server("10.0.0.1", is_del=True, is_flush=True)
    yield from (gone, contents[1], gone, _weight("10.0.0.1", 5), _server("10.0.0.77", is_del=True))
    yield from (_server("10.0.0.1", weight=30), contents[1])
    yield from (_vip(_SIX, is_del=True), _vip(_SIX, is_del=True), *contents)
    yield from (_vip(_SIX, encap=_GRE6), _server("2001:db8:7::1", _SIX), *contents)
    yield from (_server("10.0.0.1", is_del=True), _vip(_FOUR, is_del=True), *contents)


SCRIPT = list(_script())


async def answers(api_socket: Path) -> list[dict[str, Any]]:
    """Send the script to a VPP, and return each request with its answers."""
    connection = VppConnection(str(api_socket))
    told = []
    for request in SCRIPT:
        if request.name in _DUMPS:
            (found,) = await connection.dump(request.name)
        else:
            found = await connection.query([request])
        shown = sorted((_plain(one) for one in found), key=json.dumps)
        told.append({"request": request.name, "fields": dict(request.fields), "answers": shown})
    await connection.disconnect()
    return told


def recorded() -> Sequence[Mapping[str, Any]]:
    return [json.loads(line) for line in FILE.read_text().splitlines()]


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        fields = {name: _plain(one) for name, one in value._asdict().items()}
        return {name: one for name, one in fields.items() if name[0] != "_" and name not in _NOT_COMPARED}
    return int(value) if isinstance(value, int) else str(value)


if __name__ == "__main__":
    FILE.write_text("".join(f"{json.dumps(one)}\n" for one in asyncio.run(answers(Path(sys.argv[1])))))
