"""The judge: what must hold at every accepted write and at every word on a board. Knows the truth, asks nobody.

Of the store's history:
- terms only grow, and a term has one holder: whoever created the key is the only one who ever puts it again;
- nobody but its holder deletes a key whose process lives; only its lease or an operator may take it away;
- a leader's write is accepted only while the leader key's create-revision is the term it was made under; so a term has
  one writing server, and after the first write of a term none of an earlier term is accepted.

Of what servers believe:
- a belief is in a term that exists, and that this very server won;
- it ends, on the believer's own boot clock, at most one renew deadline after the term's key is gone;
- two servers never believe at the same moment, whatever their wall clocks say and although their boot clocks run up to
  1 % differently, except where only the fence can be the safety: the older term's key was taken away by force (an
  operator, or a successor that knew its elector to be dead while its other processes still ran), or the older
  believer's machine was suspended and its clock with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.time import Instant
from holdfast.model.control.leader import LEADER, Leader
from holdfast.server.election.leadership import LeadershipCell, Leading
from holdfast.store.api import Entry, Event
from holdfast.testing import StoreWrite, World
from tests.sim.servers import DATA, LEADER_KEY, Data, SimServer

OPERATOR = "operator"
EXPIRY = "lease expiry"


class InvariantBroken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Term:
    """Actual course of one term."""

    number: int
    holder: Leader
    client: str
    server: SimServer
    gone: Instant | None = None
    """When its key went, on its server's own clock."""
    by_force: bool = False
    slept: bool = False
    writer: str = ""


@dataclass
class ElectionInvariants:
    world: World
    servers: list[SimServer]
    terms: dict[int, Term] = field(default_factory=dict)
    writes: int = 0

    def __post_init__(self) -> None:
        self.world.store.observers.append(self.judge_write)
        for server in self.servers:
            server.seen.append(self.judge_belief)

    @property
    def led(self) -> Term | None:
        """The term whose key exists now."""
        return next((term for term in self.terms.values() if term.gone is None), None)

    def sleeps(self, server: SimServer) -> None:
        """Return True while the server's machine and clock are suspended: its belief may then last too long."""
        said = server.shown.read()
        if said is not None and said.term in self.terms:
            self.terms[said.term].slept = True
        # It may have won and not have heard of it yet: then it shows the term only after its sleep.
        if self.led is not None and self.led.server is server:
            self.led.slept = True

    def judge_write(self, write: StoreWrite) -> None:
        for event in write.events:
            if event.key == LEADER_KEY:
                self._judge_key(write.client, event)
            elif event.key.startswith(DATA) and event.entry is not None:
                self._judge_data(event.entry)

    def judge_belief(self, server: SimServer, shown: LeadershipCell) -> None:
        if not shown.term:
            return
        term = self.terms.get(shown.term)
        if term is None or term.server is not server:
            self._broken(f"{server.name} believes to lead term {shown.term}, which it never won")
            return
        self._judge_end(term, shown)
        for other in self.servers:
            self._judge_overlap(term, other)

    def _judge_overlap(self, term: Term, other: SimServer) -> None:
        said = other.check() if other.alive and other is not term.server else None
        if not isinstance(said, Leading):
            return
        older = min(self.terms[said.term], term, key=lambda one: one.number)
        if not (older.by_force or older.slept):
            self._broken(f"{term.server.name} (term {term.number}) and {other.name} (term {said.term}) believe at once")

    def _judge_end(self, term: Term, shown: LeadershipCell | None) -> None:
        deadline = term.server.timings.renew_deadline
        if shown is not None and shown.term == term.number and term.gone and shown.until > term.gone + deadline:
            self._broken(f"{term.server.name} believes in term {term.number} too long after its key was gone")

    def _judge_key(self, client: str, event: Event) -> None:
        entry = event.entry
        if entry is None:
            self._ended(client)
        elif entry.version == 1:
            self._begun(client, entry)
        else:
            self._put_again(client, entry)

    def _begun(self, client: str, entry: Entry) -> None:
        number = entry.create_revision
        if self.terms and number <= max(self.terms):
            self._broken(f"term {number} began after term {max(self.terms)}")
        server = next(server for server in self.servers if client.startswith(f"{server.name}/"))
        self.terms[number] = Term(number, _holder(entry), client, server)

    def _put_again(self, client: str, entry: Entry) -> None:
        term = self.terms[entry.create_revision]
        if (client, _holder(entry)) != (term.client, term.holder):
            self._broken(f"{client} put the key of term {term.number}, which is {term.client}'s")

    def _ended(self, client: str) -> None:
        term = self.led
        assert term is not None
        term.gone = term.server.clock.now()
        if client == OPERATOR:
            term.by_force = True
        elif client not in (EXPIRY, term.client):
            term.by_force = True
            if not term.server.host.is_gone(term.server.namespace, term.holder.pid):
                self._broken(f"{client} deleted the key of term {term.number}, whose process lives")
        self._judge_end(term, term.server.shown.read())

    def _judge_data(self, entry: Entry) -> None:
        data = msgspec.json.decode(entry.value, type=Data)
        self.writes += 1
        there = self.world.store.keys.get(LEADER_KEY)
        number = there.create_revision if there else 0
        if data.term != number:
            self._broken(f"a write of term {data.term} by {data.life} was accepted in term {number}")
            return
        term = self.terms[data.term]
        term.writer = term.writer or data.server
        if data.server != term.writer or term.server.name != data.server:
            self._broken(f"{data.server} wrote in term {data.term}, which is {term.server.name}'s")

    def _broken(self, what: str) -> None:
        self.world.fail("the judge", InvariantBroken(what))


def _holder(entry: Entry) -> Leader:
    leader = LEADER.decode(entry.key, entry.value)
    assert not isinstance(leader, Bad)
    return leader
