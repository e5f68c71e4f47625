"""Kernel state as far as the agent knows it: everything the journal has, and everything that carries our tag. Pure.

`Present` also counts which objects depend on which, for the gates that protect dependents and the path to the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.agent.claims import AT_A_TIME, Claim, ClaimKey, portions, uses, uses_of_all
from holdfast.reconcile import Owned


@dataclass
class Present:
    claims: dict[ClaimKey, Owned[Claim]] = field(default_factory=dict)
    version: int = 0
    """Rises whenever an object or its shape changes."""
    released: set[ClaimKey] = field(default_factory=set)
    """Keys to judge again: their last dependent is gone, or their dependency is in the kernel now."""
    _dependents: Counter[ClaimKey] = field(default_factory=Counter)
    _waiting: dict[ClaimKey, set[ClaimKey]] = field(default_factory=dict)
    _followers: dict[ClaimKey, set[ClaimKey]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.claims)

    def __contains__(self, key: object) -> bool:
        return key in self.claims

    def __iter__(self) -> Iterator[ClaimKey]:
        return iter(self.claims)

    def dependents(self, key: ClaimKey) -> int:
        """Count the present objects that depend on this one."""
        return self._dependents.get(key, 0)

    def is_programmed(self, key: ClaimKey) -> bool:
        """Return whether the kernel has it as it was last wanted; the journal may have objects that the kernel lost."""
        owned = self.claims.get(key)
        return owned is not None and not owned.value.missing

    def put(self, key: ClaimKey, owned: Owned[Claim]) -> None:
        old = self.claims.get(key)
        if self._waiting and not owned.value.missing:
            self.released |= self._waiting.pop(key, set())
        if old is not None and old.value.shape == owned.value.shape:
            self.claims[key] = owned
            return
        self._drop_uses(key, old)
        self.version += 1
        self.claims[key] = owned
        for used in uses(key, owned.value.shape):
            self._dependents[used] += 1

    def drop(self, key: ClaimKey) -> None:
        self.version += 1
        self._drop_uses(key, self.claims.pop(key, None))
        if self._followers:
            self.released |= self._followers.pop(key, set())

    def replace_all(self, claims: Mapping[ClaimKey, Owned[Claim]]) -> Generator[None, None, None]:
        """Make these claims the whole content, in steps (see `holdfast.runtime.cooperative`)."""
        if not (self.claims or self._waiting):
            yield from self._fill(claims)
            return
        for key in [key for key in self.claims if key not in claims]:
            self.drop(key)
        known = self.claims.get
        for at, (key, owned) in enumerate(claims.items()):
            if at % AT_A_TIME == 0:
                yield
            if self._waiting or known(key) is not owned:
                self.put(key, owned)

    def _fill(self, claims: Mapping[ClaimKey, Owned[Claim]]) -> Generator[None, None, None]:
        """Put these claims where there is nothing: a restart counts the dependents of a hundred thousand in bulk."""
        self.version += 1
        self.claims = dict(claims)
        for some in portions(list(claims.items())):
            self._dependents.update(uses_of_all(some))
            yield

    def wait_for(self, key: ClaimKey, dependency: ClaimKey) -> None:
        """Release `key` as soon as its dependency is programmed."""
        self._waiting.setdefault(dependency, set()).add(key)

    def follow(self, key: ClaimKey, leader: ClaimKey) -> None:
        """Release `key` as soon as the other one is gone."""
        self._followers.setdefault(leader, set()).add(key)

    def take_released(self) -> set[ClaimKey]:
        released, self.released = self.released, set()
        return released

    def _drop_uses(self, key: ClaimKey, old: Owned[Claim] | None) -> None:
        for used in () if old is None else uses(key, old.value.shape):
            self._dependents[used] -= 1
            if not self._dependents[used]:
                del self._dependents[used]
                self.released.add(used)
