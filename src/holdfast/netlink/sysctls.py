"""Network settings of the kernel (`/proc/sys/net`), and the events of those that belong to devices.

They belong to the network namespace of the thread that reads or writes them, so both happen in the namespace in which
`Sysctls` was created.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.netlink import wire
from holdfast.netlink.netns import NamespaceHandle

CHANGED = 80
"""Message type of an event; the groups are 24 (IPv4) and 25 (IPv6)."""
_DEVICE = 1
_FIXED_SIZE = 4
_ROOT = Path("/proc/sys/net")


class Sysctls:
    """A knob is a path such as `ipv4/conf/eth0/forwarding`."""

    def __init__(self) -> None:
        self._namespace = NamespaceHandle()

    def read(self, knobs: Iterable[str]) -> dict[str, int]:
        """Read these knobs; those that do not exist are left out."""
        wanted = list(knobs)
        return self._namespace.run(lambda: {knob: value for knob in wanted if (value := _value(knob)) is not None})

    def write(self, values: Mapping[str, int]) -> None:
        """Set these knobs. Raises OSError."""
        self._namespace.run(lambda: _write(values))

    def close(self) -> None:
        self._namespace.close()


def name(knob: str) -> str:
    """Name of a knob as `sysctl` writes it."""
    return "net." + knob.replace(".", "%").replace("/", ".").replace("%", "/")


def device_of(message: wire.Message) -> int:
    """Number of the device whose settings changed; not positive for those of all devices."""
    found = wire.attributes(message.body, _FIXED_SIZE).get(_DEVICE)
    return 0 if found is None else int(struct.unpack("=i", found)[0])


def _value(knob: str) -> int | None:
    try:
        return int((_ROOT / knob).read_text())
    except (OSError, ValueError):
        return None


def _write(values: Mapping[str, int]) -> None:
    for knob, value in values.items():
        (_ROOT / knob).write_text(f"{value}\n")
