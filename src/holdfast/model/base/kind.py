"""Kinds: the name, keys, codec and displayed columns of one kind of object in the store.

`parse` and `decode` return an object or `Bad` and never raise, whatever the bytes (rule 9, C13). Encoding is canonical:
equal objects are equal bytes. A rewrite over an old value keeps every field that we do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from holdfast.model.base import codec
from holdfast.model.base.bad import Bad, BadReason, reason_for, shortened
from holdfast.model.base.keys import KeySpace
from holdfast.model.base.name import NameRefused
from holdfast.model.base.region import Region

T = TypeVar("T")
N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class Column(Generic[T, N]):
    """One column of `holdfast get KIND`; `wide` ones are shown with `-o wide` only."""

    header: str
    cell: Callable[[N, T], str]
    wide: bool = False


@dataclass(frozen=True)
class Kind(Generic[T, N]):
    """One kind of object.

    `tail` is the end of the key according to the object itself (it raises NameRefused when the object contradicts
    itself); `carry(new, old)` transfers what survives a rewrite; `meaning` is the object in the one spelling that
    stands for all that readers treat alike, such as another order of addresses, and is used for comparing only;
    `legacy` reads a format older than JSON.
    """

    name: str
    plural: str
    struct: type[T]
    place: KeySpace[N]
    columns: Sequence[Column[T, N]]
    tail: Callable[[T], str] | None = None
    carry: Callable[[T, T], T] | None = None
    meaning: Callable[[T], T] | None = None
    legacy: Callable[[bytes], T | None] | None = None
    _decoder: msgspec.json.Decoder[T] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_decoder", msgspec.json.Decoder(self.struct))

    def prefix(self, region: Region) -> bytes:
        """The prefix of all keys of this kind. Other kinds may share it: see `BadReason.OTHER_KIND`."""
        return self.place.root(region).encode()

    def key(self, region: Region, name: N) -> bytes:
        """The key of the object of that name. Raises NameRefused."""
        return f"{self.place.root(region)}{self.place.write(name)}".encode()

    def parse(self, key: bytes, region: Region) -> N | Bad:
        """The name in a key."""
        root = self.place.root(region)
        try:
            text = key.decode()
            if not text.startswith(root):
                return Bad(key, BadReason.OTHER_KIND, f"keys of this kind begin with {root}")
            name = self.place.read(text[len(root) :])
        except (NameRefused, UnicodeDecodeError) as error:
            return Bad(key, BadReason.STRANGE_KEY, shortened(str(error)))
        return Bad(key, BadReason.OTHER_KIND, f"this is not the key of a {self.name}") if name is None else name

    def decode(self, key: bytes, value: bytes) -> T | Bad:
        """The object at a key."""
        # protection: C13, rubbish is a value and not an exception
        if len(value) > codec.VALUE_LIMIT:
            return Bad(key, BadReason.TOO_LARGE, f"{len(value):,} bytes, the limit is {codec.VALUE_LIMIT:,}")
        try:
            obj = codec.decode(self._decoder, value)
            if self.tail is not None and not key.endswith(f"/{self.tail(obj)}".encode()):
                raise NameRefused("the name inside the value does not fit its key")
        except (ValueError, RecursionError) as error:
            old = self.legacy(value) if self.legacy is not None else None
            return Bad(key, reason_for(error), shortened(str(error))) if old is None else old
        return obj

    def read(self, key: bytes, value: bytes, region: Region) -> T | Bad:
        """The object at a key whose name was not checked yet: both must be readable."""
        name = self.parse(key, region)
        return name if isinstance(name, Bad) else self.decode(key, value)

    def encode(self, obj: T, over: bytes | None = None) -> bytes:
        """Encode the object canonically; over an old value, keeps the unknown fields of that value."""
        if over is None or len(over) > codec.VALUE_LIMIT:
            return codec.encode(obj)
        try:
            old = codec.decode(self._decoder, over)
            if self.tail is not None and self.tail(old) != self.tail(obj):
                return codec.encode(obj)
            return codec.overlay(self.struct, codec.encode(self.carried(obj, old)), over)
        except (ValueError, RecursionError):
            # A corrupt old value has nothing worth keeping: the rewrite repairs it.
            return codec.encode(obj)

    def equals(self, key: bytes, value: bytes, obj: T) -> bool:
        """Tell whether the stored value equals this object, however it is spelled, and need not be written."""
        if value == codec.encode(obj):
            return True
        old = self.decode(key, value)
        if isinstance(old, Bad):
            return False
        new = self.carried(obj, old)
        return new == old or (self.meaning is not None and self.meaning(new) == self.meaning(old))

    def carried(self, new: T, old: T) -> T:
        """The new object with what survives a rewrite of the old one."""
        return new if self.carry is None else self.carry(new, old)
