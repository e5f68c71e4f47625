"""What to probe from outside: the frontends of a configuration, or addresses given as URLs."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from holdfast.balancer.checks import registry
from holdfast.balancer.results import Settings, Target
from holdfast.config.sections.frontend import Frontend

_PORTS = {"http": 80, "https": 443}


class NotAUrl(Exception):
    """Cannot be probed; the message is one sentence for whoever typed it."""


class Url(msgspec.Struct, frozen=True):
    """A URL taken apart: whose address is to be found, and how it is probed."""

    text: str
    host: str
    port: int
    check: Settings

    @classmethod
    def parse(cls, text: str, like: Settings) -> Url:
        """`like` has the interval, timeout and all else that the URL does not say."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise NotAUrl(f"{text!r} is not a URL: {error}") from error
        if parts.scheme not in registry() or not parts.hostname:
            kinds = ", ".join(f"{name}://" for name in registry())
            raise NotAUrl(f"{text!r} cannot be probed: write one of {kinds} with a host, such as tcp://192.0.2.1:53")
        port = port or _PORTS.get(parts.scheme)
        if port is None and parts.scheme != "icmp":
            raise NotAUrl(f"{text!r} has no port: write {parts.scheme}://{parts.hostname}:PORT")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = like.host or parts.netloc.rpartition("@")[2]
        check = msgspec.structs.replace(like, type=parts.scheme, path=path, host=host)
        return cls(text, parts.hostname, port or 0, check)

    def at(self, address: str, *, only: bool) -> Target:
        """The target at one of the host's addresses."""
        return Target(self.text if only else f"{self.text} [{address}]", address, self.port, self.check)


def of_frontends(frontends: Mapping[str, Frontend], check: Settings) -> tuple[list[Target], list[str]]:
    """A target per frontend that a check can reach, and a sentence for each that none can."""
    targets, left_out = [], []
    for name, frontend in frontends.items():
        if check.type != "icmp" and (frontend.protocol == "udp" or not frontend.port):
            what = "speaks udp" if frontend.protocol == "udp" else "has no port of its own"
            left_out.append(f"frontend {name} {what}: probe it with --type icmp, or by a --url")
        else:
            targets.append(Target(name, frontend.address, frontend.port, check))
    return targets, left_out
