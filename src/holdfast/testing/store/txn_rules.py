"""What etcd refuses before a transaction is looked at: too many operations, empty keys, a key changed twice.

Both branches are judged, also the one that will not run, because etcd judges the request and not its outcome. Sizes
are those of the payload: etcd counts some bytes of framing on top, so nothing within a few hundred bytes of the limit
should be tested on the fake alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.store.api import Compare, Delete, Operation, Put, StoreError, TooLarge

MAX_OPERATIONS = 128
MAX_REQUEST_BYTES = 1_572_864
FRAMING_BYTES = 32


def refuse(compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]) -> None:
    """Raises what etcd would answer to a transaction that breaks its rules."""
    for part in (compares, then, otherwise):
        if len(part) > MAX_OPERATIONS:
            raise TooLarge(f"a transaction of {len(part)} operations is above the store's limit of {MAX_OPERATIONS}")
        if any(not item.key for item in part):
            raise StoreError("a key is empty; the store has no empty key")
    for branch in (then, otherwise):
        _refuse_key_changed_twice(branch)
    size = sum(map(_size, (*compares, *then, *otherwise)))
    if size > MAX_REQUEST_BYTES:
        raise TooLarge(f"a request of {size} bytes is above the store's limit of {MAX_REQUEST_BYTES}")


def _noticed(put: Put, delete: Delete) -> bool:
    """Whether etcd sees that the delete is about the put's key. It overlooks ranges to the end of the keyspace."""
    return put.key == delete.key if not delete.end else delete.key <= put.key < delete.end


def _refuse_key_changed_twice(branch: Sequence[Operation]) -> None:
    puts: set[bytes] = set()
    for put in _puts(branch):
        deleted = any(isinstance(op, Delete) and _noticed(put, op) for op in branch)
        if put.key in puts or deleted:
            raise StoreError(f"key {put.key!r} is changed twice in one transaction")
        puts.add(put.key)


def _puts(branch: Sequence[Operation]) -> Iterator[Put]:
    return (op for op in branch if isinstance(op, Put))


def _size(part: Compare | Operation) -> int:
    value = part.value if isinstance(part, Put) else b""
    return len(part.key) + len(value) + FRAMING_BYTES
