"""Context of every write: the kernel, our settings, its devices, and the snapshot of our objects."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.agent.claims import ClaimKey
from holdfast.agent.dataplane.linux.devices import Devices
from holdfast.agent.dataplane.linux.guard.guard import Guard
from holdfast.agent.dataplane.linux.snapshot import KernelSnapshot
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink.addresses import SIZES
from holdfast.netlink.socket import Netlink, is_gone
from holdfast.netlink.wire import Batch

Refused = dict[ClaimKey, str]
"""Objects that were not changed, each with a sentence."""


@dataclass(slots=True)
class LinuxContext:
    kernel: Netlink
    settings: LinuxSettings
    devices: Devices
    snapshot: KernelSnapshot
    guard: Guard
    lost: bool = False
    """A device was created again, and what was on it is gone: everything has to be read."""

    def make(self, keys: Sequence[ClaimKey], batch: Batch) -> Refused:
        """Send requests that create these objects, in the same order."""
        return {keys[one.index]: sentence(one.errno, one.text) for one in self.kernel.transact(batch)}

    def remove(self, keys: Sequence[ClaimKey], batch: Batch) -> Refused:
        """Send requests that delete these objects, in the same order; one that is gone already is done."""
        refused = self.kernel.transact(batch)
        return {keys[one.index]: sentence(one.errno, one.text) for one in refused if not is_gone(one.errno)}


def sentence(number: int, text: str) -> str:
    """Explain the kernel's error, and what to do about it where that is known."""
    if number == errno.EEXIST:
        return "a foreign object occupies this place in the kernel: remove it, or change the desired state"
    if number == errno.EPERM:
        return "the kernel denied permission: give the agent CAP_NET_ADMIN"
    return f"the kernel refused it: {text or os.strerror(number)}"


def octets(key: ClaimKey) -> bytes:
    """Address of a key as the kernel has it."""
    return key.number.to_bytes(SIZES[key.family], "big")
