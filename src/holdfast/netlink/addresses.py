"""Addresses as the kernel has them, octets, and as canonical text (see `model.base.address`)."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

FAMILIES = {4: socket.AF_INET, 16: socket.AF_INET6}
"""Socket family by the number of octets of an address."""
SIZES = {4: 4, 6: 16}
"""Octets of an address of IPv4 and IPv6."""


def octets(text: str) -> bytes:
    """Parse a canonical address."""
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def text(address: bytes) -> str:
    """Canonical text of an address."""
    if len(address) == 4:
        return socket.inet_ntop(socket.AF_INET, address)
    shown = socket.inet_ntop(socket.AF_INET6, address)
    return str(IPv6Address(address)) if "." in shown else shown


def mac_octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def mac_text(mac: bytes) -> str:
    return mac.hex(":")


def packed(values: Sequence[bytes]) -> NDArray[Any]:
    """Values of one size as a column of a batch."""
    return np.frombuffer(b"".join(values), f"V{len(values[0])}")
