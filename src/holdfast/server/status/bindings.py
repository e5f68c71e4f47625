"""Which endpoints the inventory has, and on which hosts: by the keys at which their own hosts speak of them. Pure."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointStatusName

WORKLOAD = b"/workload/"
_STATUS = b"/status"
_PLAIN = f"{string.ascii_letters}{string.digits}.-_\n".encode()
"""What stands in names as nearly all are, one on a line: nothing of it is escaped or refused."""
_SWAPPED = bytes.maketrans(b"-\0", b"\0-")
_ORCHESTRATORS = {b"openstack", b"holdfast"}


class Bound(msgspec.Struct, frozen=True, gc=False):
    """One endpoint: at which key its host's agent says that it lives, and what the inventory calls it (nothing, where
    the name has to be taken apart for that)."""

    agent: bytes
    name: bytes


class _Host(NamedTuple):
    agent: bytes
    endpoints: dict[bytes, None]


class Bindings:
    """Keys of the inventory go in; what comes out are keys of reports."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self._prefix = ENDPOINT_STATUS.prefix(region)
        self._wanted = ENDPOINT.prefix(region)
        self._namespace = f"/{region.namespace}%2f".encode()
        self.endpoints: dict[bytes, Bound] = {}
        self._hosts: dict[bytes, _Host] = {}
        """By the key of their agent's reports."""

    def add(self, wanted: Sequence[bytes]) -> None:
        """The inventory has endpoints with these keys."""
        names = self._names(wanted)
        keys = self._plain_status_keys(names)
        if keys is not None:
            self._bind(zip(keys, names, strict=True))
        elif len(wanted) != 1:
            for one in wanted:
                self.add([one])
        elif (key := self._any_status_key(wanted[0])) is not None:
            self._bind([(key, b"")])

    def follow(self, wanted: bytes, *, bound: bool) -> bytes | None:
        """The inventory has an endpoint with that key, or has it no more. The key of its reports, if that is news."""
        key = self.status_key(wanted)
        if key is None or (key in self.endpoints) is bound:
            return None
        if bound:
            self.add([wanted])
        else:
            self._hosts[self.endpoints.pop(key).agent].endpoints.pop(key)
        return key

    def spoken_of(self, agent: bytes) -> Iterable[bytes]:
        """The endpoints of the host whose agent says there that it lives."""
        host = self._hosts.get(agent)
        return () if host is None else host.endpoints

    def per_agent(self) -> Mapping[bytes, int]:
        """How many endpoints each agent has."""
        return {host.agent: len(host.endpoints) for host in self._hosts.values() if host.endpoints}

    def agent(self, key: bytes) -> bytes:
        """Where the agent of the host that speaks at this key says that it lives."""
        return agent_of(key, len(self._prefix))

    def status_key(self, key: bytes) -> bytes | None:
        """Where the host of a wanted endpoint speaks of it; None for an endpoint that is not of this region."""
        keys = self._plain_status_keys(self._names([key]))
        return keys[0] if keys else self._any_status_key(key)

    def _bind(self, named: Iterable[tuple[bytes, bytes]]) -> None:
        host, start = _Host(b"", {}), b"\0"  # of the one before: mostly it is the same
        for key, name in named:
            if not key.startswith(start):
                host = self._host(self.agent(key))
                start = host.agent.removesuffix(_STATUS) + b"/"
            host.endpoints[key] = None
            self.endpoints[key] = Bound(host.agent, name)

    def _host(self, agent: bytes) -> _Host:
        return self._hosts.setdefault(agent, _Host(agent, {}))

    def _names(self, wanted: Sequence[bytes]) -> Sequence[bytes]:
        """Nothing for a key of another region: an inventory can hold several, and its changes are those of all."""
        prefix, start = self._wanted, len(self._wanted)
        return [key[start:] if key.startswith(prefix) else b"" for key in wanted]

    def _plain_status_keys(self, names: Sequence[bytes]) -> Sequence[bytes] | None:
        """The same for names without anything to escape or to refuse, as nearly all are; None if there is another one.
        They are taken apart as one text, since this runs for every row and would take twice as long one by one."""
        text = b"\n".join(names)
        if text.count(b"\n") != len(names) - 1 or text.translate(None, _PLAIN):
            return None
        # In names a dash is written twice; the other ones, and the ends of lines, separate.
        parts = text.replace(b"--", b"\0").translate(_SWAPPED).replace(b"\n", b"\0\n\0").split(b"\0")
        nodes, orchestrators, devices, endpoints, ends = (parts[column::5] for column in range(5))
        if len(parts) != 5 * len(names) - 1 or b"" in parts or {b"\n", *ends} != {b"\n"}:
            return None
        if not _ORCHESTRATORS.issuperset(orchestrators):
            return None
        columns = zip(nodes, orchestrators, devices, endpoints, strict=True)
        head, namespace = self._prefix, self._namespace
        return [b"".join((head, n, WORKLOAD, o, namespace, d, b"/endpoint/", e)) for n, o, d, e in columns]

    def _any_status_key(self, key: bytes) -> bytes | None:
        name = ENDPOINT.parse(key, self.region)
        if isinstance(name, Bad):
            return None
        return ENDPOINT_STATUS.key(self.region, EndpointStatusName.of(self.region, name))


def agent_of(key: bytes, start: int) -> bytes:
    """Where the agent of the host that speaks of this endpoint says that it lives; the host stands at `start`."""
    return key[: key.find(b"/", start)] + _STATUS
