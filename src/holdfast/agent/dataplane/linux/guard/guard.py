"""Guard in the kernel: reads our table as claims, and writes them. Tables of others are neither read nor changed (N14).

Elements are added and deleted over netlink, a run in one transaction; the `nft` tool makes the chains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from holdfast.agent.claims import GUARD, ClaimKey, GuardElement, GuardTable, Shape
from holdfast.agent.dataplane.linux.guard import ruleset
from holdfast.agent.dataplane.linux.guard.sets import element_of, key_of, set_of
from holdfast.netlink.netns import NamespaceHandle
from holdfast.netlink.nftables import elements
from holdfast.netlink.nftables.connection import NftError, NftTable
from holdfast.netlink.nftables.elements import Transaction

_WAY_OUT = "set agent.guard: false"
_AT_ONCE = 500
"""Elements in one message."""

Answers = dict[ClaimKey, str]
"""Objects that were not changed, each with a sentence."""


class Guard:
    """Table of the network namespace in which this is created."""

    def __init__(self, wanted: GuardTable) -> None:
        self._wanted = wanted
        self._namespace = NamespaceHandle()
        self._error = ""
        self._table: NftTable | None = None
        try:
            self._table = NftTable(ruleset.TABLE, _WAY_OUT)
        except NftError as error:
            self._error = str(error)

    @property
    def port(self) -> int:
        """Port by which the kernel names our changes; 0 where nftables cannot be used."""
        return 0 if self._table is None else self._table.port

    def close(self) -> None:
        self._namespace.close()
        if self._table is not None:
            self._table.close()

    def read(self) -> dict[ClaimKey, Shape]:
        """Read our objects. Raises OSError."""
        try:
            return {} if self._table is None else self._read(self._table)
        except NftError as error:
            raise OSError(str(error)) from error

    def make_table(self) -> str | None:
        """Create the table, or replace its rules; return None, or why that is refused."""
        return self._try(self._make_table)

    def remove_table(self) -> str | None:
        """Delete the table with everything in it."""
        return self._try(self._remove_table)

    def add(self, keys: Sequence[ClaimKey]) -> Answers:
        return self._change(keys, is_addition=True)

    def delete(self, keys: Sequence[ClaimKey]) -> Answers:
        """Delete objects that are there."""
        return self._change(keys, is_addition=False)

    def _read(self, table: NftTable) -> dict[ClaimKey, Shape]:
        if not _is_ours(table):
            return {}
        found: dict[ClaimKey, Shape] = {}
        names = table.maps()
        is_whole = table.rules() == ruleset.fingerprints(self._wanted) and names >= ruleset.SETS.keys()
        found[GUARD] = self._wanted if is_whole else GuardTable(0, 0)
        for name in sorted(names & ruleset.SETS.keys()):
            for one in elements.elements(table.elements(name)):
                key = key_of(name, elements.key_of(one), elements.end_of(one))
                if key is not None:
                    found[key] = GuardElement()
        return found

    def _make_table(self, table: NftTable) -> None:
        if table.owner() not in (None, ruleset.OWNER):
            raise NftError(f"the table inet {ruleset.TABLE} belongs to another program: delete it, or {_WAY_OUT}")
        self._restructure(table, ruleset.frame(self._wanted))

    def _remove_table(self, table: NftTable) -> None:
        if _is_ours(table):
            self._restructure(table, ruleset.REMOVAL)

    def _restructure(self, table: NftTable, text: str) -> None:
        self._namespace.run(partial(table.restructure, text))

    def _try(self, work: Callable[[NftTable], None]) -> str | None:
        if self._table is None:
            return self._error
        try:
            work(self._table)
        except NftError as error:
            return str(error)
        return None

    def _change(self, keys: Sequence[ClaimKey], *, is_addition: bool) -> Answers:
        """Change them in one transaction; if that is refused, one by one, so that one does not stop the others."""
        refusal = self._commit(keys, is_addition=is_addition)
        if refusal is None:
            return {}
        if len(keys) == 1 or self._table is None:
            return dict.fromkeys(keys, refusal)
        answers = ((key, self._commit([key], is_addition=is_addition)) for key in keys)
        return {key: refusal for key, refusal in answers if refusal is not None}

    def _commit(self, keys: Sequence[ClaimKey], *, is_addition: bool) -> str | None:
        transaction = Transaction(ruleset.TABLE, exclusive=False)
        change = transaction.add if is_addition else transaction.delete
        for name, its in _by_set(keys).items():
            for start in range(0, len(its), _AT_ONCE):
                change(name, *map(element_of, its[start : start + _AT_ONCE]))
        return self._try(lambda table: table.commit(transaction)) if transaction else None


def _is_ours(table: NftTable) -> bool:
    return table.owner() == ruleset.OWNER  # protection: N14


def _by_set(keys: Sequence[ClaimKey]) -> Mapping[str, Sequence[ClaimKey]]:
    found: dict[str, list[ClaimKey]] = {}
    for key in keys:
        found.setdefault(set_of(key), []).append(key)
    return found
