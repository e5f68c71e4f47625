"""Messages of VPP's binary API that the balancer uses, as a VPP of August 2026 (lb.api 1.2.0) describes them itself.

Numbers of messages differ between two starts of VPP; their names and checksums do not. `tests/balancer/dataplane/vpp`
compares this table with a real VPP where there is one.
"""

from __future__ import annotations

from typing import Any

_REPLY = [["i32", "retval"]]
_VIP = [["vl_api_address_with_prefix_t", "pfx"], ["u8", "protocol", {"default": 255}], ["u16", "port"]]
_PLACE = [["vl_api_address_with_prefix_t", "pfx"], ["u8", "protocol"], ["u16", "port"]]
_SOURCES = [["vl_api_ip4_address_t", "ip4_src_address"], ["vl_api_ip6_address_t", "ip6_src_address"]]
_KEPT = {"default": 0xFFFFFFFF}

REQUESTS: dict[str, tuple[str, list[Any]]] = {
    "lb_conf": (
        "0x56cd3261",
        [*_SOURCES, ["u32", "sticky_buckets_per_core", _KEPT], ["u32", "flow_timeout", _KEPT]],
    ),
    "lb_conf_get": ("0x51077d14", []),
    "lb_add_del_vip_v2": (
        "0x7c520e0f",
        [
            *_VIP,
            ["vl_api_lb_encap_type_t", "encap"],
            ["u8", "dscp"],
            ["vl_api_lb_srv_type_t", "type"],
            ["u16", "target_port"],
            ["u16", "node_port"],
            ["u32", "new_flows_table_length", {"default": 1024}],
            ["bool", "src_ip_sticky"],
            ["bool", "is_del"],
        ],
    ),
    "lb_add_del_as_v2": (
        "0x2f1d3b0e",
        [
            *_VIP,
            ["vl_api_address_t", "as_address"],
            ["u8", "weight", {"default": 100}],
            ["bool", "is_del"],
            ["bool", "is_flush"],
        ],
    ),
    "lb_as_set_weight": (
        "0x2d89bdbd",
        [*_VIP, ["vl_api_address_t", "as_address"], ["u8", "weight"], ["bool", "is_flush"]],
    ),
    "lb_vip_dump": (
        "0x56110cb7",
        [_VIP[0], ["vl_api_prefix_matcher_t", "pfx_matcher"], *_VIP[1:]],
    ),
    "lb_as_v2_dump": ("0x1063f819", _PLACE),
}
"""Checksum and fields, beyond client and context."""

REPLIES: dict[str, tuple[str, list[Any]]] = {
    **{f"{name}_reply": ("0xe8d4e804", _REPLY) for name in REQUESTS if not name.endswith(("_dump", "_get"))},
    "lb_conf_get_reply": (
        "0x923427ac",
        [*_REPLY, *_SOURCES, ["u32", "sticky_buckets_per_core"], ["u32", "flow_timeout"]],
    ),
    "lb_vip_details": (
        "0x1329ec9b",
        [
            ["vl_api_lb_vip_t", "vip"],
            ["vl_api_lb_encap_type_t", "encap"],
            ["vl_api_ip_dscp_t", "dscp"],
            ["vl_api_lb_srv_type_t", "srv_type"],
            ["u16", "target_port"],
            ["u16", "flow_table_length"],
        ],
    ),
    "lb_as_v2_details": (
        "0x90064aae",
        [
            ["vl_api_lb_vip_t", "vip"],
            ["vl_api_address_t", "app_srv"],
            ["u8", "flags"],
            ["u32", "in_use_since"],
            ["u8", "weight"],
            ["u32", "num_buckets"],
        ],
    ),
}


def definitions(without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The table in the form in which VPP describes its API."""
    head, requested = ["u16", "_vl_msg_id"], [["u32", "client_index"], ["u32", "context"]]
    requests = {name: each for name, each in REQUESTS.items() if name not in without}
    return {
        "types": [
            [
                "address",
                ["vl_api_address_family_t", "af"],
                ["vl_api_address_union_t", "un", {"discriminator": "af"}],
            ],
            ["prefix", ["vl_api_address_t", "address"], ["u8", "len"]],
            ["prefix_matcher", ["u8", "le"], ["u8", "ge"]],
            ["lb_vip", ["vl_api_address_with_prefix_t", "pfx"], ["vl_api_ip_proto_t", "protocol"], ["u16", "port"]],
        ],
        "enums": [
            ["address_family", ["ADDRESS_IP4", 0], ["ADDRESS_IP6", 1], {"enumtype": "u8"}],
            ["ip_dscp", ["IP_API_DSCP_CS0", 0], {"enumtype": "u8"}],
            ["ip_proto", ["IP_API_PROTO_TCP", 6], ["IP_API_PROTO_UDP", 17], {"enumtype": "u8"}],
            ["lb_srv_type", ["LB_API_SRV_TYPE_CLUSTERIP", 0], {"enumtype": "u32"}],
            ["lb_encap_type", ["LB_API_ENCAP_TYPE_GRE4", 0], {"enumtype": "u32"}],
        ],
        "unions": [
            [
                "address_union",
                ["vl_api_ip4_address_t", "ip4", {"case": "ADDRESS_IP4"}],
                ["vl_api_ip6_address_t", "ip6", {"case": "ADDRESS_IP6"}],
            ]
        ],
        "aliases": {
            "ip4_address": {"type": "u8", "length": 4},
            "ip6_address": {"type": "u8", "length": 16},
            "address_with_prefix": {"type": "vl_api_prefix_t"},
        },
        "messages": [
            *([name, head, *requested, *fields, {"crc": crc}] for name, (crc, fields) in requests.items()),
            *([name, head, requested[1], *fields, {"crc": crc}] for name, (crc, fields) in REPLIES.items()),
        ],
        "services": {name: _service(name) for name in requests},
    }


def _service(name: str) -> dict[str, Any]:
    if name.endswith("_dump"):
        return {"reply": name.replace("_dump", "_details"), "stream": True}
    return {"reply": f"{name}_reply"}
