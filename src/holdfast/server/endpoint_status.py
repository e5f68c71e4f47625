"""Endpoints: from what their host's agent says to what the inventory says of them. Pure.

Only the word of the host that an endpoint is on counts (C24): the inventory's row decides which key is looked at. Said
by a live agent: up, down, error are ACTIVE, DOWN, ERROR, and nothing said is DOWN. While its agent is not alive, the
last value is kept and shown as unknown. A value that cannot be read is present, and leaves the last one in place.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast.model.bad import Bad
from holdfast.model.endpoint import ENDPOINT as WANTED
from holdfast.model.endpoint_status import ENDPOINT_STATUS, EndpointStatus, EndpointStatusName, State
from holdfast.model.observed import ENDPOINT, EndpointSeen, Word
from holdfast.model.region import Region
from holdfast.reconcile import Change
from holdfast.server.agent_status import NOT_OURS, is_report_of_agent

_STATUS = b"/status"
_WORKLOAD = b"/workload/"
_WORDS = {State.UP: Word.ACTIVE, State.DOWN: Word.DOWN, State.ERROR: Word.ERROR}
_SEEN = {state: EndpointSeen(word) for state, word in _WORDS.items()}
_SILENT = EndpointSeen(Word.DOWN)
_UNKNOWN = {word: EndpointSeen(word, known=False) for word in Word}
_MOST_REMEMBERED = 1_000
_PARTS = 6
_PLAIN = f"{string.ascii_letters}{string.digits}.-_".encode()
"""What stands in names as nearly all are: nothing of it is escaped or refused."""
_ORCHESTRATORS = (b"openstack", b"holdfast")


class Alive:
    """An agent's report, of which here only matters that it is there."""


ALIVE = Alive()
Said = EndpointStatus | Alive


class Endpoints:
    """What is known of endpoints: `reports` as the mirror has them, `bound` as the inventory has them."""

    kind = ENDPOINT
    plural = "endpoints"

    def __init__(self, region: Region) -> None:
        self.region = region
        self.prefix = ENDPOINT_STATUS.prefix(region)
        self._start = len(self.prefix)
        self._wanted = WANTED.prefix(region)
        self._namespace = f"/{region.namespace}%2f".encode()
        self.reports: Mapping[bytes, Said] = {}
        self.bad: Mapping[bytes, Bad] = {}
        self._bound: dict[bytes, bytes] = {}
        """Each endpoint of the inventory, with the key at which its host's agent says that it lives."""
        self._of_agent: dict[bytes, set[bytes]] = {}
        self._agents: dict[bytes, bytes] = {}
        self._decoded: dict[bytes, EndpointStatus] = {}
        self._heard: set[str] = set()
        self.strays = 0
        """Words about endpoints that are not on the host that said them."""

    def decode(self, key: bytes, value: bytes) -> Said | Bad:
        if key.find(_WORKLOAD, self._start) < 0:
            if not is_report_of_agent(key, self._start):
                return NOT_OURS
            self._heard.add(self.host(key))
            return ALIVE
        known = self._decoded.get(value)
        if known is not None:
            return known
        decoded = ENDPOINT_STATUS.decode(key, value)
        if not isinstance(decoded, Bad) and len(self._decoded) < _MOST_REMEMBERED:
            self._decoded[value] = decoded  # there are three words to say, and a hundred thousand endpoints
        return decoded

    def bind(self, keys: Iterable[bytes]) -> None:
        """The endpoints of the inventory, by the keys at which their own hosts speak of them."""
        self._bound, self._of_agent, self._agents = {}, {}, {}
        for key in keys:
            self._bind(key)

    def rebind(self, key: bytes, *, bound: bool) -> None:
        agent = self._bound.pop(key, None)
        if agent is not None:
            self._of_agent[agent].discard(key)
        if bound:
            self._bind(key)

    def _bind(self, key: bytes) -> None:
        agent = self._agent(key)
        agent = self._agents.setdefault(agent, agent)  # one object for all endpoints of a host
        spoken_of = self._of_agent.get(agent)
        if spoken_of is None:
            spoken_of = self._of_agent[agent] = set()
        spoken_of.add(key)
        self._bound[key] = agent

    def is_bound(self, key: bytes) -> bool:
        """C24: whether the inventory has this endpoint on the host that speaks of it."""
        return key in self._bound

    def affected(self, key: bytes, old: Said | None, new: Said | None) -> Iterable[bytes]:
        if self.is_bound(key):
            return (key,)
        self.strays += isinstance(new, EndpointStatus)
        return self._of_agent.get(key, ())

    def heard(self, _fresh: Iterable[bytes]) -> Collection[str]:
        """Whose report has come since this was last asked; an agent that goes on living is no change here."""
        heard, self._heard = self._heard, set()
        return heard

    def reporting(self) -> int:
        return sum(1 for agent in self._of_agent if agent in self.reports)

    def keys(self) -> Collection[bytes]:
        return self._bound.keys()

    def want(self, key: bytes, last: EndpointSeen | None) -> EndpointSeen | None:
        if not self.is_bound(key):
            return None
        said = self.reports.get(key)
        if (self._bound.get(key) or self._agent(key)) not in self.reports:
            return _UNKNOWN[last.status if last is not None else _word(said)]
        if key in self.bad:
            # What the inventory says, before what this server remembers: the next leader may remember something else.
            return EndpointSeen(last.status if last is not None else _word(said))
        return _SEEN[said.status] if isinstance(said, EndpointStatus) else _SILENT

    def is_loss(self, old: EndpointSeen, new: EndpointSeen | None) -> bool:
        """Whether an endpoint becomes unknown by that, because its host was lost."""
        return old.known and new is not None and not new.known

    def is_routine(self, change: Change[bytes, EndpointSeen]) -> bool:
        return False

    def host(self, key: bytes) -> str:
        return key[self._start : key.find(b"/", self._start)].decode(errors="replace")

    def name(self, key: bytes) -> str:
        """What the inventory calls it, wherever it is."""
        parts = self._parts(key)
        return _joined(parts[1:]) if parts else key.decode(errors="backslashreplace")

    def show(self, key: bytes) -> str:
        """As the syncer shows it, so that all that was decided about it stands under one name."""
        if key.count(b"%") == 1:  # only the one after the namespace: nothing else needs to be unescaped
            parts = key[self._start :].decode(errors="replace").replace("-", "--").split("/")
            if len(parts) == _PARTS:
                host, _, orchestrator, workload, _, endpoint = parts
                return f"endpoint {host}-{orchestrator}-{workload[workload.rfind('%2f') + 3 :]}-{endpoint}"
        name = self._parts(key)
        return f"endpoint {_joined(name)}" if name else key.decode(errors="backslashreplace")

    def words(self, value: EndpointSeen) -> str:
        return value.words

    def _parts(self, key: bytes) -> Sequence[str]:
        """Host, orchestrator, workload and endpoint; nothing for a key of another form."""
        name = ENDPOINT_STATUS.parse(key, self.region)
        return () if isinstance(name, Bad) else (name.host, name.orchestrator, name.device, name.endpoint)

    def status_key(self, key: bytes) -> bytes | None:
        """Where the host of a wanted endpoint speaks of it."""
        return self._plain_status_key(key) or self._any_status_key(key)

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
        made = (self.prefix, node, _WORKLOAD, orchestrator, self._namespace, device, b"/endpoint/", endpoint)
        return b"".join(made).replace(b"\0", b"-")

    def _any_status_key(self, key: bytes) -> bytes | None:
        name = WANTED.parse(key, self.region)
        if isinstance(name, Bad):
            return None
        return ENDPOINT_STATUS.key(self.region, EndpointStatusName.of(self.region, name))

    def orphans(self) -> Mapping[str, int]:
        """Hosts without a live agent that have endpoints, and how many: nobody will program these."""
        lonely = {agent: len(keys) for agent, keys in self._of_agent.items() if keys and agent not in self.reports}
        return {self.host(agent): count for agent, count in sorted(lonely.items())}

    def _agent(self, key: bytes) -> bytes:
        return agent_of(key, self._start)


def agent_of(key: bytes, start: int) -> bytes:
    """Where the agent of the host that speaks of this endpoint says that it lives; the host stands at `start`."""
    return key[: key.find(b"/", start)] + _STATUS


def _joined(parts: Sequence[str]) -> str:
    return "-".join([part.replace("-", "--") for part in parts])


def _word(said: Said | None) -> Word:
    return _WORDS[said.status] if isinstance(said, EndpointStatus) else Word.NONE
