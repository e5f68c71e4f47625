"""Watches one source, the hosts, endpoints and migrations of a region in the store, and turns it into claims.

All three kinds come by one ordered watch, so that none is ever ahead of another: a migration and its endpoints are
always those of one revision. With `routing: bgp` only what belongs to this host is watched, by a watch for each kind,
and `move_questions` brings them in step. A source does not count before a complete list. From then on it takes over
whole states only, never half a list or half a batch of events, in which an address has left its old owner and has not
reached the new one yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import structlog

from holdfast.agent.claims import AT_A_TIME, BlockedBy, Claim, ClaimKey, Owner
from holdfast.agent.desired.census import CensusComparison
from holdfast.agent.desired.move_questions import MoveQuestions
from holdfast.agent.desired.peers import LocalHost, Routing
from holdfast.agent.desired.skipped_rate import SkippedRate
from holdfast.agent.desired.slim_endpoint import SlimEndpoint, decode_endpoint
from holdfast.agent.desired.source_claims import SourceClaims
from holdfast.agent.tunnels import OwnTunnels
from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.host import HOST, Host, region_of
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.model.control.intent import INTENT, Intent, IntentKind, IntentName
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.fleet.prefixes import FLEET_PREFIXES, FleetPrefixes
from holdfast.reconcile import Change, Owned, Synced
from holdfast.runtime.clock import Clock
from holdfast.runtime.cooperative import Steps, in_turns
from holdfast.store.api import Keys, OwnKey, Store, StoreError, named
from holdfast.store.host_keys import keys_of
from holdfast.store.identity import identity_key
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.verify import verify_mirror

log = structlog.get_logger(__name__)

Journaled = Callable[[], Iterable[tuple[ClaimKey, Owned[Claim]]]]
"""Claims that earlier runs of the agent programmed."""
OwnerOf = Callable[[ClaimKey], Owned[Claim] | None]
"""Claim that a key has in the kernel now, as the journal knows it."""

Source = Host | SlimEndpoint | Migration
KINDS: tuple[Kind[Any, Any], ...] = (MIGRATION, HOST, ENDPOINT)
"""In the order of their keys."""

RETRY = Duration(seconds=5)
SYNCER_ALLOW = IntentName(IntentKind.ALLOW, Scope(ScopeKind.WORKER, "syncer"))
_CHANGES_AT_A_TIME = 100
"""Changes of objects that are applied between two yields."""
UNWANTED_LIMIT = 100_000
"""Claims for which the revision is kept at which they became unwanted; beyond it, all count as unwanted since now."""


class TakenState(NamedTuple):
    """State of the store that is taken over as a whole."""

    changed: Mapping[bytes, Source | None]
    revision: int
    lists: int
    endpoints: frozenset[EndpointName]
    """Endpoints with unreadable values."""
    migrations: frozenset[EndpointName]
    """Migrations with unreadable values."""
    unreadable: tuple[str, ...]
    """Keys of values that were never readable."""


class SourceWatcher:
    def __init__(
        self,
        name: str,
        store: Store,
        region: Region,
        here: LocalHost,
        clock: Clock,
        own_key: OwnKey | None = None,
        *,
        blocked_by: BlockedBy = lambda _key, _shape: None,
        owner_of: OwnerOf = lambda _key: None,
        own_tunnels: OwnTunnels | None = None,
    ) -> None:
        """`own_key` is written by this host anyway: a watch that does not deliver it is dead (C38). `own_tunnels`
        records what the source knows of the tunnels of this host."""
        self.name = name
        self.store = store
        self.region = region
        self.routing = here.routing
        self._clock = clock
        self._identity_key, self._prefixes_key = identity_key(region), FLEET_PREFIXES.key(region, "prefixes")
        is_mesh = here.routing is Routing.MESH
        keys: Sequence[Keys] = [kind.prefix(region) for kind in KINDS] if is_mesh else keys_of(here.host, region)
        self._objects: Mirror[Source] = Mirror(store, keys, self._decode, own=own_key, now=clock.now, keep_created=True)
        self._questions = None if is_mesh else MoveQuestions(store, region, self._objects)
        # One stream over all: between their keys nothing is written often.
        self._intents: Mirror[Intent | FleetPrefixes | bytes] = Mirror(
            store,
            [FLEET_PREFIXES.prefix(region), self._identity_key, INTENT.prefix(region)],
            self._decode_intent,
            own=own_key,
            now=clock.now,
        )
        self._owner_of = owner_of
        self._own_tunnels = own_tunnels or OwnTunnels()
        mirror = self._objects
        self.claims = SourceClaims(here, region, mirror.good_revision, mirror.create_revision, blocked_by, self._holder)
        self.skipped = SkippedRate()
        self.census = CensusComparison(store, region, here.host, is_own=not is_mesh)
        self.lists = 0
        """Complete lists taken so far: a new one may come from a restored store, or from another one."""
        self._catching_up = asyncio.Lock()
        self._taken = 0
        """Revision taken over."""
        self._refusals: dict[Mirror[Any], str] = {}
        self._logged: set[bytes] = set()
        self._unwanted_since: dict[ClaimKey, int] = {}
        """Revision at which a claim became unwanted."""
        self._all_unwanted_since = 0
        """The same for every other claim."""
        self._changed: dict[bytes, Source | None] = {}
        self.synced = Synced(clock.now())

    async def run(
        self,
        wake: Callable[[], None],
        on_intents: Callable[[], Awaitable[None]],
        on_identity: Callable[[], None] = lambda: None,
    ) -> None:
        """Run until cancelled; call `wake` when there is something to take over, `on_intents` when intents changed,
        `on_identity` when the identity of the store did."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_mirror(self._objects))
            tasks.create_task(self._run_mirror(self._intents))
            tasks.create_task(self._collect_changes(wake))
            if self._questions is not None:
                tasks.create_task(self._questions.run(partial(self._take, wake)))
            tasks.create_task(self._follow_intents(on_intents, on_identity))

    async def catch_up(self, journaled: Journaled = tuple) -> set[ClaimKey]:
        """Take over everything the mirror has, as a whole; return the claims that this may have touched."""
        async with self._catching_up:  # it takes turns: no other call may see, or record, a half of it
            while not self._objects.settled or self._objects.backlog:  # noqa: ASYNC110
                await asyncio.sleep(0)  # loading and collecting need nothing but turns of the loop
            if not is_complete((self._objects, self._intents)):  # without the intents, a paused fleet would be changed
                return set()
            if self.synced.revision is None and self._questions is not None and self._questions.is_open:
                return set()  # the first list is not complete without the answers
            return await self._apply(self._take_state(), journaled)

    async def _apply(self, taken: TakenState, journaled: Journaled) -> set[ClaimKey]:
        touched = await in_turns(self._apply_changes(taken))
        if self.synced.revision is None:
            touched |= self.claims.restore(await in_turns(self._own(journaled)))
        self._update_synced(taken)
        await in_turns(self._update_unwanted(touched))
        return touched

    async def refresh(self) -> None:
        """Return when a fresh, linearizable list equals what is known here. Raises `Away`."""
        await verify_mirror(self.store, self._objects)

    def is_allowed(self, change: Change[ClaimKey, Claim]) -> bool:
        """Return whether an operator released the syncer's brake for the revision that this delete follows from."""
        since = self._unwanted_since.get(change.key, self._all_unwanted_since)
        allow = self._intents.objects.get(INTENT.key(self.region, SYNCER_ALLOW))
        return isinstance(allow, Intent) and allow.covers(since, self._clock.wall())

    def is_proven(self, change: Change[ClaimKey, Claim]) -> bool:
        """Return whether the leader's census confirms that the object is gone from which this delete follows."""
        since = self._unwanted_since.get(change.key, self._all_unwanted_since)
        return 0 < since <= self.census.proven and self.census.is_gone(change.owner.value.owner)

    async def compare_census(self, present: Mapping[ClaimKey, Owned[Claim]]) -> bool:
        """Compare the store with the leader's census, for the owners of claims in the kernel that are not wanted any
        more; return whether it proves more than before. Raises `Away`."""
        return await self.census.compare(await in_turns(self._unwanted_owners(present)), self.refresh)

    def stored_intent(self, name: IntentName) -> Intent | Bad | None:
        """The intent of that name in the store, as far as it was delivered."""
        key = INTENT.key(self.region, name)
        found = self._intents.bad.get(key) or self._intents.objects.get(key)
        assert not isinstance(found, FleetPrefixes | bytes)  # other keys
        return found

    @property
    def fleet_prefixes(self) -> FleetPrefixes | None:
        """The fleet's prefixes as the leader published them last; None while there are none."""
        found = self._intents.objects.get(self._prefixes_key)
        return found if isinstance(found, FleetPrefixes) else None

    @property
    def delivered(self) -> int:
        """Revision of the last change that the store has delivered."""
        return max(self._objects.revision, self._intents.revision)

    @property
    def intent_lists(self) -> int:
        """Complete lists of intents that the store has delivered."""
        return self._intents.lists

    def has_host(self, name: str) -> bool | None:
        """Return whether the source has a host of that name; None before its first complete list."""
        return HOST.key(self.region, name) in self._objects.objects if self._objects.synced else None

    def _take_state(self) -> TakenState:
        """Take over what has arrived, as a whole: more may arrive while it is applied, and belongs to the next one."""
        changed, self._changed = self._changed, {}
        mirror = self._objects
        unreadable = self._unreadable_names(ENDPOINT), self._unreadable_names(MIGRATION)
        return TakenState(changed, mirror.revision, mirror.lists, *unreadable, tuple(unreadable_keys(mirror)))

    def _apply_changes(self, taken: TakenState) -> Steps[set[ClaimKey]]:
        """Apply them in steps: a list of a hundred thousand takes a second, and a heartbeat must not wait for it."""
        touched: set[ClaimKey] = set()
        for at, key in enumerate(sorted(taken.changed), 1):
            touched |= self._apply_change(key, taken.changed[key])
            if at % _CHANGES_AT_A_TIME == 0:
                yield
        before, self._taken = self._taken, taken.revision
        if self._taken != before:
            touched |= self.claims.rewritten()
        return touched | self.claims.set_unreadable(taken.endpoints, taken.migrations)

    def _own(self, journaled: Journaled) -> Steps[list[tuple[ClaimKey, Owned[Claim]]]]:
        """Read in steps what this source owns in the journal."""
        found: list[tuple[ClaimKey, Owned[Claim]]] = []
        for at, (key, owned) in enumerate(journaled(), 1):
            if owned.source == self.name:
                found.append((key, owned))
            if at % AT_A_TIME == 0:
                yield
        return found

    def _apply_change(self, key: bytes, found: Any) -> set[ClaimKey]:
        kind = self._kind(key)
        if kind is HOST:
            return self.claims.set_host(key, found)
        return self.claims.set_endpoint(key, found) if kind is ENDPOINT else self.claims.set_migration(key, found)

    def _decode(self, key: bytes, value: bytes) -> Source | Bad:
        kind = self._kind(key)
        decoded: Source | Bad = decode_endpoint(key, value) if kind is ENDPOINT else kind.decode(key, value)
        return _of_other_region(key, self.region) if _is_foreign(decoded, self.region) else decoded

    def _decode_intent(self, key: bytes, value: bytes) -> Intent | FleetPrefixes | bytes | Bad:
        if key == self._identity_key:
            return value  # any change of it is news
        kind = INTENT if key.startswith(INTENT.prefix(self.region)) else FLEET_PREFIXES
        return kind.decode(key, value)

    def _kind(self, key: bytes) -> Kind[Any, Any]:
        return next(kind for kind in KINDS if key.startswith(kind.prefix(self.region)))

    def _unreadable_names(self, kind: Kind[Any, EndpointName]) -> frozenset[EndpointName]:
        """Names of objects with an unreadable value, from their keys."""
        prefix = kind.prefix(self.region)
        names = [kind.parse(key, self.region) for key in self._objects.unreadable if key.startswith(prefix)]
        return frozenset(name for name in names if not isinstance(name, Bad))

    def _unwanted_owners(self, present: Mapping[ClaimKey, Owned[Claim]]) -> Generator[None, None, set[Owner]]:
        owners: set[Owner] = set()
        for at, (key, owned) in enumerate(list(present.items())):
            if at % AT_A_TIME == 0:
                yield
            if owned.source == self.name and self.claims.wanted(key) is None:
                owners.add(owned.value.owner)
        return owners

    def _update_synced(self, taken: TakenState) -> None:
        self._log_unreadable()
        self._own_tunnels.record(self.claims.macs(), self.claims.own)
        self.lists = taken.lists
        revision, unreadable = taken.revision, taken.unreadable
        if (revision, unreadable) != (self.synced.revision, self.synced.unreadable):
            is_new = self.synced.revision is None or unreadable != self.synced.unreadable
            self.synced = Synced(self._clock.now() if is_new else self.synced.since, revision, unreadable)

    def _log_unreadable(self) -> None:
        """Log each unreadable value once, for as long as it stays unreadable."""
        bad = self._objects.bad
        for key in bad.keys() - self._logged:
            log.error("unreadable value in the store; its last good version stays wanted", problem=str(bad[key]))
        self._logged = set(bad)

    def _update_unwanted(self, touched: Iterable[ClaimKey]) -> Steps[None]:
        revision = self.synced.revision or 0
        self._all_unwanted_since = self._all_unwanted_since or revision
        for at, key in enumerate(touched, 1):
            self._unwanted_since.pop(key, None)
            if self.claims.wanted(key) is None:
                self._unwanted_since[key] = revision
            if at % AT_A_TIME == 0:
                yield
        if len(self._unwanted_since) > UNWANTED_LIMIT:
            self._unwanted_since.clear()
            self._all_unwanted_since = revision

    async def _run_mirror(self, mirror: Mirror[Any]) -> None:
        await mirror.keep_running(lambda error: self._note_refusal(mirror, error), RETRY)

    def _note_refusal(self, mirror: Mirror[Any], error: StoreError) -> None:
        """Keep the reason, and log it when it is a new one."""
        if self._refusals.get(mirror) != str(error):
            self._refusals[mirror] = str(error)
            prefix = named(mirror.prefixes)
            log.error("watch refused; programmed state stays", source=self.name, prefix=prefix, error=str(error))

    @property
    def refusal(self) -> str:
        """Reason for which the store refuses a list that this source lacks, with its prefix; empty if it does not."""
        lacking = (mirror for mirror in (self._objects, self._intents) if not mirror.synced)
        found = ((named(mirror.prefixes), self._refusals.get(mirror, "")) for mirror in lacking)
        return next((f"{prefix} cannot be read: {why}" for prefix, why in found if why), "")

    async def _collect_changes(self, wake: Callable[[], None]) -> None:
        while True:
            deltas = await self._objects.take()
            if self._questions is None:
                self._changed |= {delta.key: delta.new for delta in deltas}
            else:
                self._changed |= self._questions.raise_about(deltas)
            wake()
            await asyncio.sleep(0)

    def _take(self, wake: Callable[[], None], objects: Mapping[bytes, Source | None]) -> None:
        self._changed |= objects
        if objects:
            wake()

    async def _follow_intents(self, on_intents: Callable[[], Awaitable[None]], on_identity: Callable[[], None]) -> None:
        await self._intents.wait_synced()
        while True:
            await on_intents()
            if any(delta.key == self._identity_key for delta in await self._intents.take()):
                on_identity()

    @property
    def objects(self) -> Mirror[Source]:
        """The mirror of hosts, endpoints and migrations."""
        return self._objects

    def _holder(self, key: ClaimKey) -> str:
        owned = self._owner_of(key)
        return owned.value.owner.endpoint if owned is not None and owned.source == self.name else ""


def _is_foreign(decoded: Source | Bad, region: Region) -> bool:
    """Return whether this is a host of another region. Hosts of all regions share one prefix, and their underlays may
    overlap: as peers they would take each other's neighbours."""
    return isinstance(decoded, Host) and not region_of(decoded.metadata.labels, region)  # protection: N25


def _of_other_region(key: bytes, region: Region) -> Bad:
    return Bad(key, BadReason.OTHER_KIND, f"this host belongs to another region than {region.segment}")


def is_complete(mirrors: Iterable[Mirror[Any]]) -> bool:
    """Return whether every prefix has delivered a complete list; no timeout stands in for one (N12)."""
    return all(mirror.synced for mirror in mirrors)  # protection: N12


def unreadable_keys(mirror: Mirror[Any]) -> list[str]:
    """Keys of values that were never readable: they are present, not absent (C39)."""
    # protection: C39
    return [key.decode(errors="backslashreplace") for key in mirror.unreadable]
