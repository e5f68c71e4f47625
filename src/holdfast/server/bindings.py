"""Which endpoints the inventory has, and on which hosts: by the keys at which their own hosts speak of them. Pure."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from holdfast.model.bad import Bad
from holdfast.model.endpoint import ENDPOINT
from holdfast.model.endpoint_status import ENDPOINT_STATUS, EndpointStatusName
from holdfast.model.region import Region

WORKLOAD = b"/workload/"
_STATUS = b"/status"
_PLAIN = f"{string.ascii_letters}{string.digits}.-_".encode()
"""What stands in names as nearly all are: nothing of it is escaped or refused."""
_ORCHESTRATORS = (b"openstack", b"holdfast")


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

    def add(self, wanted: Iterable[bytes]) -> None:
        """The inventory has endpoints with these keys."""
        for key in wanted:
            self._bind(key)

    def follow(self, wanted: bytes, *, bound: bool) -> bytes | None:
        """The inventory has an endpoint with that key, or has it no more. The key of its reports, if that is news."""
        key = self.status_key(wanted)
        if key is None or (key in self.endpoints) is bound:
            return None
        if bound:
            self._bind(wanted)
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
        return self._plain_status_key(key) or self._any_status_key(key)

    def _bind(self, wanted: bytes) -> None:
        key, name = self._plain_status_key(wanted), wanted[len(self._wanted) :]
        if key is None:
            key, name = self._any_status_key(wanted), b""
        if key is None:
            return
        agent = self.agent(key)
        host = self._hosts.get(agent)
        if host is None:
            host = self._hosts[agent] = _Host(agent, {})
        host.endpoints[key] = None
        self.endpoints[key] = Bound(host.agent, name)

    def _plain_status_key(self, key: bytes) -> bytes | None:
        """The same for a name without anything to escape or to refuse, as nearly all are: this runs for every row."""
        if not key.startswith(self._wanted):
            return None  # an inventory can hold several regions, and its changes are those of all
        name = key[len(self._wanted) :]
        if name.translate(None, _PLAIN):
            return None
        parts = name.replace(b"--", b"\0").split(b"-")
        if len(parts) != 4 or b"" in parts or parts[1] not in _ORCHESTRATORS:
            return None
        node, orchestrator, device, endpoint = parts
        made = (self._prefix, node, WORKLOAD, orchestrator, self._namespace, device, b"/endpoint/", endpoint)
        return b"".join(made).replace(b"\0", b"-")

    def _any_status_key(self, key: bytes) -> bytes | None:
        name = ENDPOINT.parse(key, self.region)
        if isinstance(name, Bad):
            return None
        return ENDPOINT_STATUS.key(self.region, EndpointStatusName.of(self.region, name))


def agent_of(key: bytes, start: int) -> bytes:
    """Where the agent of the host that speaks of this endpoint says that it lives; the host stands at `start`."""
    return key[: key.find(b"/", start)] + _STATUS
