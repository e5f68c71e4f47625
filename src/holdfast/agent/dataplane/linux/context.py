"""What every order stands on: the kernel, our marks in it, its devices, and the picture of what is ours there."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.agent.claims import ClaimKey
from holdfast.agent.dataplane.linux.devices import Devices
from holdfast.agent.dataplane.linux.snapshot import KernelSnapshot
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink.addresses import SIZES
from holdfast.netlink.socket import Netlink, is_gone
from holdfast.netlink.wire import Batch

Refused = dict[ClaimKey, str]
"""What was not done, each with a sentence."""


@dataclass(slots=True)
class LinuxContext:
    kernel: Netlink
    settings: LinuxSettings
    devices: Devices
    picture: KernelSnapshot

    def make(self, keys: Sequence[ClaimKey], batch: Batch) -> Refused:
        """Sends requests that make these objects, in the same order."""
        return {keys[one.index]: sentence(one.errno, one.words) for one in self.kernel.transact(batch)}

    def remove(self, keys: Sequence[ClaimKey], batch: Batch) -> Refused:
        """Sends requests that delete these objects, in the same order; what is gone already is done."""
        refused = self.kernel.transact(batch)
        return {keys[one.index]: sentence(one.errno, one.words) for one in refused if not is_gone(one.errno)}


def sentence(number: int, words: str) -> str:
    """What the kernel said, and what to do about it where that can be known."""
    if number == errno.EEXIST:
        return "something that is not ours is at this place in the kernel: remove it, or change what is wanted"
    if number == errno.EPERM:
        return "the kernel does not permit it: give the agent CAP_NET_ADMIN"
    return f"the kernel refuses it: {words or os.strerror(number)}"


def octets(key: ClaimKey) -> bytes:
    """The address of a key as the kernel has it."""
    return key.number.to_bytes(SIZES[key.family], "big")
