"""Events of the guard's table: whether another program has changed it."""

from __future__ import annotations

from holdfast.agent.dataplane.linux.guard import ruleset
from holdfast.netlink import wire
from holdfast.netlink.nftables.connection import NETFILTER
from holdfast.netlink.socket import Netlink

_GROUP = 7
_NEW_GENERATION = 10 << 8 | 15
_TABLE = 1
_HEADER = 4
_NAME = ruleset.TABLE.encode()


class GuardEvents:
    def __init__(self, port: int) -> None:
        """`port` is that of our own changes, which are no events."""
        self._port = port
        self._netlink = Netlink(NETFILTER, (_GROUP,), is_blocking=False)

    def fileno(self) -> int:
        return self._netlink.fileno()

    def close(self) -> None:
        self._netlink.close()

    def arrived(self) -> bool:
        """Read what has arrived; return whether our table was changed, or may have been because events were lost."""
        changed = False
        while True:
            try:
                for message in self._netlink.receive():
                    changed |= self._is_about_us(message)
            except BlockingIOError:
                return changed
            except OSError:
                changed = True

    def _is_about_us(self, message: wire.Message) -> bool:
        if message.port == self._port or message.type == _NEW_GENERATION:
            return False
        name = wire.attributes(message.body, _HEADER).get(_TABLE)
        return name is not None and bytes(name).rstrip(b"\0") == _NAME
