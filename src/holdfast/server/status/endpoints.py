"""Endpoints: from what their host's agent says to what the inventory says of them. Pure.

Only the word of the host that an endpoint is on counts (C24): the inventory's row decides which key is looked at. Said
by a live agent: up, down, error are ACTIVE, DOWN, ERROR, and nothing said is DOWN. While its agent is not alive, the
last value is kept and shown as unknown. A value that cannot be read is present, and leaves the last one in place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus
from holdfast.model.fleet.observed import ENDPOINT, EndpointSeen, ObservedState
from holdfast.server.status.agents import NOT_OURS, is_report_of_agent
from holdfast.server.status.bindings import WORKLOAD, Bindings, Bound
from holdfast.store.mirror.pending import Delta

_WORDS = {
    EndpointState.UP: ObservedState.ACTIVE,
    EndpointState.DOWN: ObservedState.DOWN,
    EndpointState.ERROR: ObservedState.ERROR,
}
_SEEN = {state: EndpointSeen(word) for state, word in _WORDS.items()}
_SILENT = EndpointSeen(ObservedState.DOWN)
_UNKNOWN = {word: EndpointSeen(word, known=False) for word in ObservedState}
_MOST_REMEMBERED = 1_000


class Alive:
    """An agent's report, of which here only matters that it is there."""


ALIVE = Alive()
Said = EndpointStatus | Alive


class EndpointRules:
    """What is known of endpoints: `reports` as the mirror has them, `bindings` as the inventory has them."""

    kind = ENDPOINT
    plural = "endpoints"
    dated = False
    routine = None

    def __init__(self, region: Region) -> None:
        self.region = region
        self.prefix = ENDPOINT_STATUS.prefix(region)
        self._start = len(self.prefix)
        self.bindings = Bindings(region)
        """The endpoints of the inventory."""
        self.reports: Mapping[bytes, Said] = {}
        self.bad: Mapping[bytes, Bad] = {}
        self._decoded: dict[bytes, EndpointStatus] = {}
        self._heard: set[str] = set()
        self.strays = 0
        """Words about endpoints that are not on the host that said them."""

    def decode(self, key: bytes, value: bytes) -> Said | Bad:
        if key.find(WORKLOAD, self._start) < 0:
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

    def bound(self, key: bytes) -> Bound | None:
        """C24: the endpoint that is spoken of there, if the inventory has it on the host that speaks."""
        return self.bindings.endpoints.get(key)

    def affected(self, deltas: Sequence[Delta[Said]]) -> Iterable[bytes]:
        """An endpoint that says what was seen of it last is as it was; nobody tells when an agent was looked at."""
        bound = self.bound
        own = [delta for delta in deltas if bound(delta.key) is not None]
        keys = [delta.key for delta in own if delta.new is not delta.old]
        if len(own) < len(deltas):
            for delta in deltas:
                if bound(delta.key) is None:
                    self.strays += isinstance(delta.new, EndpointStatus)
                    keys += self.bindings.spoken_of(delta.key)
        return keys

    def heard(self, _fresh: Iterable[bytes]) -> Collection[str]:
        """Whose report has come since this was last asked; an agent that goes on living is no change here."""
        heard, self._heard = self._heard, set()
        return heard

    def reporting(self) -> int:
        return sum(1 for agent in self.bindings.per_agent() if agent in self.reports)

    def keys(self) -> Collection[bytes]:
        return self.bindings.endpoints.keys()

    def want(self, key: bytes, last: EndpointSeen | None) -> EndpointSeen | None:
        bound = self.bound(key)
        if bound is None:
            return None
        said = self.reports.get(key)
        if bound.agent not in self.reports:
            return _UNKNOWN[last.status if last is not None else _word(said)]
        if key in self.bad:
            # What the inventory says, before what this server remembers: the next leader may remember something else.
            return EndpointSeen(last.status if last is not None else _word(said))
        return _SEEN[said.status] if isinstance(said, EndpointStatus) else _SILENT

    def lives(self, value: EndpointSeen) -> bool:
        """Whether the agent of its host does."""
        return value.known

    def is_loss(self, old: EndpointSeen, new: EndpointSeen | None) -> bool:
        """Whether an endpoint becomes unknown by that, because its host was lost."""
        return old.known and new is not None and not new.known

    def host(self, key: bytes) -> str:
        return key[self._start : key.find(b"/", self._start)].decode(errors="replace")

    def name(self, key: bytes) -> str:
        """What the inventory calls it, wherever it is."""
        parts = self._parts(key)
        return _joined(parts[1:]) if parts else key.decode(errors="backslashreplace")

    def show(self, key: bytes) -> str:
        """As the syncer shows it, so that all that was decided about it stands under one name."""
        bound = self.bound(key)
        if bound is not None and bound.name:
            return f"endpoint {bound.name.decode()}"
        name = self._parts(key)
        return f"endpoint {_joined(name)}" if name else key.decode(errors="backslashreplace")

    def words(self, value: EndpointSeen) -> str:
        return value.words

    in_full = words

    def _parts(self, key: bytes) -> Sequence[str]:
        """Host, orchestrator, workload and endpoint; nothing for a key of another form."""
        name = ENDPOINT_STATUS.parse(key, self.region)
        return () if isinstance(name, Bad) else (name.host, name.orchestrator, name.device, name.endpoint)

    def orphans(self) -> Mapping[str, int]:
        """Hosts without a live agent that have endpoints, and how many: nobody will program these."""
        lonely = {agent: count for agent, count in self.bindings.per_agent().items() if agent not in self.reports}
        return {self.host(agent): count for agent, count in sorted(lonely.items())}


def _joined(parts: Sequence[str]) -> str:
    return "-".join([part.replace("-", "--") for part in parts])


def _word(said: Said | None) -> ObservedState:
    return _WORDS[said.status] if isinstance(said, EndpointStatus) else ObservedState.NONE
