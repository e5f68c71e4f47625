"""Caller of a control socket, as the kernel reports it, and what it may do there.

Two groups may use the sockets of a daemon: operators everything, readers only the commands that change nothing. A
caller is recorded with the user of its process and the user who logged in (the kernel's login uid, which neither sudo
nor su changes); the environment, such as `SUDO_USER`, proves nothing.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

_NO_LOGIN = 2**32 - 1
_SO_PEERGROUPS = 59
_MOST_BYTES = 1_024  # of an option, in Python: 256 groups

READING = frozenset(
    {
        *(
            "about",
            "balancer",
            "balancers",
            "buckets",
            "deletes",
            "drains",
            "explain",
            "flow",
            "held",
            "history",
            "host",
            "intents",
        ),
        *("metrics", "moves", "orphans", "other-histories", "peers", "pending", "report", "routes", "servers"),
        *("status", "traffic"),
    }
)
"""Commands that change nothing. Every other one is for operators, also one that is added later."""


class Who(msgspec.Struct, frozen=True):
    """The caller, as the kernel reports it."""

    uid: int
    pid: int
    name: str

    @classmethod
    def of(cls, peer: socket.socket) -> Who:
        pid, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return cls(uid, pid, caller_name(uid, login_uid(pid)))


class AccessLevel(Enum):
    """Powers of a caller."""

    NONE = "none"
    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Access:
    """Groups of a control socket, as ids; without any, the mode of the socket alone decides."""

    own: int
    """User of the daemon."""
    operators: int | None = None
    readers: int | None = None

    @property
    def has_groups(self) -> bool:
        return self.operators is not None or self.readers is not None

    def level(self, uid: int, groups: Collection[int]) -> AccessLevel:
        """Return what a caller may do. Pure."""
        if uid in (0, self.own) or not self.has_groups or self.operators in groups:
            return AccessLevel.OPERATOR
        return AccessLevel.READER if self.readers in groups else AccessLevel.NONE

    def refusal(self, level: AccessLevel, command: str) -> str:
        """Return why this command is refused, and who may give it; empty if it is not. Pure."""
        if level is AccessLevel.OPERATOR or (level is AccessLevel.READER and command in READING):
            return ""
        if level is AccessLevel.READER:
            return f"this user may look, not change: {_members('control.operators', self.operators)}"
        return f"this user may not use this daemon: {_members('control.readers', self.readers)}"


def _members(setting: str, gid: int | None) -> str:
    return f"use sudo, or join the group {group_name(gid)} ({setting})" if gid is not None else "use sudo"


def group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def group_id(name: str | None) -> int | None:
    """Return the id of a group; None for none. Raises LookupError with a sentence if this machine lacks it."""
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise LookupError(f"this machine has no group {name!r}: create it with groupadd --system {name}") from None


def peer_groups(peer: socket.socket) -> tuple[int, ...]:
    """Return the groups of the process at the other end: its own one, and the supplementary ones."""
    _pid, _uid, gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        packed = peer.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_BYTES)
    except OSError:  # more groups than fit: only the own one counts
        return (gid,)
    return (gid, *struct.unpack(f"{len(packed) // 4}I", packed))


def login_uid(pid: int | str = "self") -> int | None:
    """Return the user who logged in, also behind sudo and su; None for a service, or a kernel without audit."""
    with contextlib.suppress(OSError, ValueError):
        uid = int(Path(f"/proc/{pid}/loginuid").read_text(encoding="ascii"))
        return None if uid == _NO_LOGIN else uid
    return None


def caller_name(uid: int, login: int | None) -> str:
    """Return the name under which a caller is recorded: `alice`, or `root (login alice)`."""
    name = _user(uid)
    return name if login in (None, uid) else f"{name} (login {_user(login)})"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def this_user() -> str:
    """Return the name under which the user of this process is recorded."""
    return caller_name(os.getuid(), login_uid())
