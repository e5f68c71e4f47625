"""Place: everything the one loop needs to reconcile a syncer, agent or balancer: source, target, gates, wording.

`holdfast.runtime.reconciler.loop` runs every place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from holdfast.model.base.time import Duration
from holdfast.reconcile import Backoff, Brake, Change, Gate, Kinds, Op, Outcome, Owned
from holdfast.reconcile.change import K, V
from holdfast.runtime.reconciler.rekeying import Rekeying

K_co = TypeVar("K_co", covariant=True)

Run = Sequence[tuple[K, Owned[V]]]


class Source(Protocol[K, V]):
    """Desired state. Raises `Away` while it is unreachable or incomplete."""

    async def read(self, after: K | None, upto: K | None) -> Run[K, V]:
        """Return the desired objects with keys in (after, upto], in key order; None stands for no bound."""
        ...

    async def get(self, keys: Collection[K]) -> Mapping[K, Owned[V]]:
        """Return the desired objects of these keys now; a key that is not desired is missing from the answer."""
        ...

    async def refresh(self) -> None:
        """Return once `read` and `get` answer from a fresh, complete, linearizable list."""
        ...


class Target(Protocol[K, V]):
    """Actual state, and how it is changed. Raises `Away` while it is unreachable."""

    async def read(self, after: K | None) -> tuple[Run[K, V], K | None]:
        """Return a page of the objects above that key, in key order, and the key after which the next page begins."""
        ...

    async def get(self, keys: Collection[K]) -> Mapping[K, Owned[V]]:
        """Return the present objects of these keys now; the answer may include others."""
        ...

    async def apply(self, ready: Sequence[Change[K, V]]) -> Sequence[Outcome[K, V]]:
        """Apply these changes, idempotently, and return one outcome for each."""
        ...


class Feed(Protocol[K_co]):
    """Durable list of changes at the source, such as an outbox. Raises `Away` while it is unreachable."""

    async def fetch(self) -> Collection[K_co]:
        """Return the keys of new changes. The loop calls it before each turn."""
        ...

    async def settle(self, is_open: Callable[[K_co], bool]) -> bool:
        """Remove the changes whose keys are all settled; True when there is more to fetch. Called after each turn."""
        ...


@dataclass(frozen=True, slots=True)
class LoopTimings:
    """Intervals and batch size of the loop."""

    audit: Duration = Duration(seconds=300)
    """Time between two full passes."""
    recheck: Duration = Duration(seconds=1)
    """Time between two checks of the gates that hold something."""
    batch: int = 1_000
    """Changes per call of `apply`."""
    patience: Duration = Duration(seconds=5)
    """Longest wait before an unreachable dependency is tried again."""
    backoff: Backoff = field(default_factory=Backoff)
    """Waits between two attempts at a change that failed."""
    linger: Duration = Duration(0)
    """Extra time before the brake requests its fresh list, so that thousands of brakes that close at the same moment
    do not list the store at the same moment."""


DONE: Mapping[Op, str] = {Op.DELETE: "deleted", Op.REPLACE: "replaced", Op.CREATE: "created"}


@dataclass
class Place(Generic[K, V]):
    """One place that reconciles, as the loop sees it."""

    name: str
    source: Source[K, V]
    target: Target[K, V]
    gates: Sequence[Gate[K, V]]
    kinds: Kinds[K]
    show: Callable[[K], str]
    """Formats a key as an operator writes it."""
    same: Callable[[V, V], bool]
    brake: Brake[K, V] | None = None
    feed: Feed[K] | None = None
    moves: Rekeying[K, V] | None = None
    """Set where objects can change their key: pairs the two halves of such a change in a full pass."""
    look_up: Callable[[Sequence[Change[K, V]]], Awaitable[None]] | None = None
    """Fetches what the gates must know about the changes of a plan, just before it is made: gates do no IO. It is
    called again with all changes when the other halves of moves join a plan. Raises `Away`."""
    other_keys: Callable[[Sequence[Change[K, V]]], Collection[K]] | None = None
    """Returns further keys under which the objects of these changes are present or wanted, as far as `look_up` found
    them: both halves of a move must be in one plan."""
    term: Callable[[], int] = field(default=lambda: 0)
    quiet: Collection[str] = ()
    """Gates whose holds are logged at debug level only: they occur at every start and open by themselves."""
    routine: Callable[[Change[K, V]], bool] | None = None
    """Selects changes that occur all the time, such as heartbeats: counted, but neither logged nor recorded."""
    show_value: Callable[[V], str] = field(default=lambda _value: "")
    """Formats a value where the key alone does not describe the object: `ACTIVE`, `alive`."""
    done: Mapping[Op, str] = field(default_factory=lambda: DONE)
    """Verbs in the decision log, for a place that does not create, replace or delete objects: "was notified of"."""
    live_first: bool = False
    """True where changes that arrive during a full pass are applied between two pages instead of after the last: for
    long passes and urgent changes. `get` of source and target must then answer with the present for every object from
    the first page on."""
    on_away: Callable[[str], None] = field(default=lambda _what: None)
    """Called with the name of a dependency, such as "store", when a turn found it unreachable."""
    read_back: bool = True
    """True where applied changes are read back at once; not needed where applying is itself a proof."""
