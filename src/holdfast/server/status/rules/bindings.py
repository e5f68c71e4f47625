"""Bindings of the inventory's endpoints to hosts, by the keys at which their hosts report them. Pure."""

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
"""Characters of nearly all names, joined by newlines: none of them is escaped or refused."""
_SWAPPED = bytes.maketrans(b"-\0", b"\0-")
_ORCHESTRATORS = {b"openstack", b"holdfast"}


class Bound(msgspec.Struct, frozen=True, gc=False):
    """One endpoint: the key of its agent's reports, and its name in the inventory (empty where the name has to be
    parsed for that)."""

    agent: bytes
    name: bytes


class _Host(NamedTuple):
    agent: bytes
    endpoints: dict[bytes, None]


class Bindings:
    """Maps keys of endpoints in the inventory to keys of their reports."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self._prefix = ENDPOINT_STATUS.prefix(region)
        self._wanted = ENDPOINT.prefix(region)
        self._namespace = f"/{region.namespace}%2f".encode()
        self.endpoints: dict[bytes, Bound] = {}
        self._hosts: dict[bytes, _Host] = {}
        """Hosts by the key of their agent's reports."""

    def add(self, wanted: Sequence[bytes]) -> None:
        """Add the endpoints with these keys of the inventory."""
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
        """Add or remove the endpoint with that key of the inventory. Returns its status key if that is a change."""
        key = self.status_key(wanted)
        if key is None or (key in self.endpoints) is bound:
            return None
        if bound:
            self.add([wanted])
        else:
            self._hosts[self.endpoints.pop(key).agent].endpoints.pop(key)
        return key

    def endpoints_of(self, agent: bytes) -> Iterable[bytes]:
        """Endpoints of the host whose agent reports at that key."""
        host = self._hosts.get(agent)
        return () if host is None else host.endpoints

    def per_agent(self) -> Mapping[bytes, int]:
        """Number of endpoints by agent."""
        return {host.agent: len(host.endpoints) for host in self._hosts.values() if host.endpoints}

    def agent(self, key: bytes) -> bytes:
        """Key of the agent's reports on the host that reports at this key."""
        return agent_of(key, len(self._prefix))

    def status_key(self, key: bytes) -> bytes | None:
        """Key at which the host of a wanted endpoint reports it; None for an endpoint of another region."""
        keys = self._plain_status_keys(self._names([key]))
        return keys[0] if keys else self._any_status_key(key)

    def _bind(self, named: Iterable[tuple[bytes, bytes]]) -> None:
        host, start = _Host(b"", {}), b"\0"  # host of the previous key: mostly the same
        for key, name in named:
            if not key.startswith(start):
                host = self._host(self.agent(key))
                start = host.agent.removesuffix(_STATUS) + b"/"
            host.endpoints[key] = None
            self.endpoints[key] = Bound(host.agent, name)

    def _host(self, agent: bytes) -> _Host:
        return self._hosts.setdefault(agent, _Host(agent, {}))

    def _names(self, wanted: Sequence[bytes]) -> Sequence[bytes]:
        """Empty for a key of another region: an inventory can hold several regions, and reports changes of all."""
        prefix, start = self._wanted, len(self._wanted)
        return [key[start:] if key.startswith(prefix) else b"" for key in wanted]

    def _plain_status_keys(self, names: Sequence[bytes]) -> Sequence[bytes] | None:
        """Status keys of plain names, as nearly all are; None if one of them needs escaping or is refused. Parsed as
        one text, since this runs for every row and would take twice as long one by one."""
        text = b"\n".join(names)
        if text.count(b"\n") != len(names) - 1 or text.translate(None, _PLAIN):
            return None
        # A dash inside a name is doubled; single dashes and newlines separate.
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
        if isinstance(name, Bad) or not name.node:
            return None
        return ENDPOINT_STATUS.key(self.region, EndpointStatusName.of(self.region, name))


def agent_of(key: bytes, start: int) -> bytes:
    """Key of the agent's reports on the host of this endpoint's report; the host's name begins at `start`."""
    return key[: key.find(b"/", start)] + _STATUS
