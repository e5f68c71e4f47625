"""Policy rules: which table all traffic of a family looks up, and at which priority. A rule carries a protocol
number."""

from __future__ import annotations

import struct
from typing import NamedTuple

from holdfast.netlink import wire
from holdfast.netlink.socket import Netlink
from holdfast.netlink.wire import MessageFlag

NEW, DELETE, GET = 32, 33, 34
PRIORITY, TABLE, PROTOCOL = 6, 15, 21
FIXED_SIZE = 12
_TO_TABLE = 1
_NUMBER = struct.Struct("=I")


class Rule(NamedTuple):
    """Rule without conditions: all traffic of that family looks up that table."""

    family: int
    priority: int
    table: int


def add(kernel: Netlink, rule: Rule, protocol: int) -> None:
    kernel.send_request(_request(NEW, MessageFlag.CREATE | MessageFlag.EXCLUSIVE | MessageFlag.ACK, rule, protocol))


def remove(kernel: Netlink, rule: Rule, protocol: int) -> None:
    kernel.send_request(_request(DELETE, MessageFlag.ACK, rule, protocol))


def dump(kernel: Netlink, family: int, protocol: int) -> list[Rule]:
    """Rules of that family that carry that protocol number."""
    datagrams = kernel.dump(wire.request(GET, MessageFlag.DUMP, struct.pack("=B11x", family)))
    received = [message for datagram in datagrams for message in wire.messages(datagram)]
    rules = [read(message, protocol) for message in received if message.type >= wire.FIRST_TYPE]
    return [rule for rule in rules if rule is not None and rule.family == family]


def read(message: wire.Message, protocol: int) -> Rule | None:
    """Rule that a message is about, if it carries that protocol number."""
    attributes = wire.attributes(message.body, FIXED_SIZE)
    tag = attributes.get(PROTOCOL)
    if tag is None or tag[0] != protocol:
        return None
    priority, table = (_NUMBER.unpack(attributes[kind])[0] if kind in attributes else 0 for kind in (PRIORITY, TABLE))
    return Rule(message.body[0], priority, table)


def _request(kind: int, flags: int, rule: Rule, protocol: int) -> bytes:
    fixed = struct.pack("=8BI", rule.family, 0, 0, 0, 0, 0, 0, _TO_TABLE, 0)
    chosen = (
        wire.attribute(PRIORITY, _NUMBER.pack(rule.priority))
        + wire.attribute(TABLE, _NUMBER.pack(rule.table))
        + wire.attribute(PROTOCOL, bytes([protocol]))
    )
    return wire.request(kind, flags, fixed + chosen)
