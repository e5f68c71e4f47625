"""A place where Holdfast compares and applies: what is wanted, what is there, which gates stand between.

Everything that the one loop (`holdfast.runtime.reconciler.loop`) has to be told about the syncer, the agent, a balancer
…
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast.model.base.time import Duration
from holdfast.reconcile import Brake, Change, Gate, Kinds, Op, Outcome, Owned
from holdfast.reconcile.change import K, V
from holdfast.runtime.reconciler.rekeying import Rekeying

K_co = TypeVar("K_co", covariant=True)

Run = Sequence[tuple[K, Owned[V]]]


class Source(Protocol[K, V]):
    """What is wanted. Raises `Away` while it cannot tell."""

    async def read(self, after: K | None, upto: K | None) -> Run[K, V]:
        """All that is wanted with keys in (after, upto], in key order; None stands for no bound."""
        ...

    async def look(self, keys: Collection[K]) -> Mapping[K, Owned[V]]:
        """What is wanted for these keys now; a key that is not wanted is not in the answer."""
        ...

    async def refresh(self) -> None:
        """Returns when a fresh, complete, linearizable list is what `read` and `look` answer from."""
        ...


class Target(Protocol[K, V]):
    """What is there, and how it is changed. Raises `Away` while it cannot be reached."""

    async def read(self, after: K | None) -> tuple[Run[K, V], K | None]:
        """A page of what is there above that key, in key order, and after which key the next begins (None: no more)."""
        ...

    async def look(self, keys: Collection[K]) -> Mapping[K, Owned[V]]:
        """What is there of these keys now; the answer may tell of others as well."""
        ...

    async def apply(self, ready: Sequence[Change[K, V]]) -> Sequence[Outcome[K, V]]:
        """Makes these changes, idempotently, and answers with one outcome for each."""
        ...


class Feed(Protocol[K_co]):
    """A durable list of what changed at the source, such as an outbox. Raises `Away` while it cannot be read."""

    async def fetch(self) -> Collection[K_co]:
        """The keys of changes that came since the last time; asked before each turn."""
        ...

    async def settle(self, is_open: Callable[[K_co], bool]) -> bool:
        """Forgets the changes of which no key is open any more; whether there is more to fetch. Asked after a turn."""
        ...


@dataclass(frozen=True, slots=True)
class LoopTimings:
    """How often things happen without being asked for."""

    audit: Duration = Duration(seconds=300)
    """Between two full passes."""
    recheck: Duration = Duration(seconds=1)
    """Between two looks at the gates that hold something."""
    batch: int = 1_000
    """Changes per call of `apply`."""
    patience: Duration = Duration(seconds=5)
    """The longest pause before trying a dependency again that is away."""
    linger: Duration = Duration(0)
    """How much longer than it must the brake waits for its fresh list: where thousands of brakes close at the same
    moment, their lists must not be asked for at the same moment."""


class Wording(NamedTuple):
    """What is done to an object, as it stands in a sentence: "could not `do`", and `done`."""

    do: str
    done: str


DEEDS: Mapping[Op, Wording] = {
    Op.DELETE: Wording("delete", "deleted"),
    Op.REPLACE: Wording("replace", "replaced"),
    Op.CREATE: Wording("create", "created"),
}


@dataclass
class Place(Generic[K, V]):
    """One of the places where Holdfast compares and applies: everything the loop has to be told about it."""

    name: str
    source: Source[K, V]
    target: Target[K, V]
    gates: Sequence[Gate[K, V]]
    kinds: Kinds[K]
    show: Callable[[K], str]
    """The key as a person writes it."""
    same: Callable[[V, V], bool]
    brake: Brake[K, V] | None = None
    feed: Feed[K] | None = None
    moves: Rekeying[K, V] | None = None
    """Where objects can get another key: finds the two halves of such a change in a full pass."""
    term: Callable[[], int] = field(default=lambda: 0)
    quiet: Collection[str] = ()
    """Gates whose holds are nothing to tell anybody: they belong to every start, and open by themselves."""
    routine: Callable[[Change[K, V]], bool] | None = None
    """Changes that come all the time, such as heartbeats: counted, and nothing to tell anybody."""
    words: Callable[[V], str] = field(default=lambda _value: "")
    """How a value reads in a sentence, where the key does not say it all: `ACTIVE`, `alive`."""
    deeds: Mapping[Op, Wording] = field(default_factory=lambda: DEEDS)
    """How changes read in a sentence, where they make and remove nothing: "was told of"."""
    live_first: bool = False
    """Whether what changes during a full pass is done between two pages of it, instead of after the last: where a pass
    is long and a change is news. For sources and targets whose `look` answers with the present, of every object, from
    the first page on."""
    read_back: bool = True
    """Whether what was applied is looked up again at once; not needed where applying is itself a proof."""
