"""Bad: a key or value that cannot be decoded, with the reason.

A bad value is present, not absent (C39): readers keep the last good object, and prune nothing that could be its state.
The detail is one short sentence for log, doctor and status; it quotes at most a few characters of the value.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from holdfast.model.base.address import AddressRefused
from holdfast.model.base.name import NameRefused

DETAIL_LIMIT = 80
"""Characters of an error message that are kept; anything quoted in it is shorter still."""


class BadReason(Enum):
    """Reason for a bad key or value. The same words appear in log, metric, API and `holdfast doctor`."""

    TOO_LARGE = "larger than any value may be"
    NOT_UTF8 = "not UTF-8"
    NOT_JSON = "not JSON"
    TOO_DEEP = "nested too deeply"
    WRONG_SHAPE = "JSON of the wrong shape"
    WRONG_KIND = "says that it is of another kind or version"
    WRONG_ADDRESS = "holds something that is not an address"
    WRONG_NAME = "says another name than its key"
    NOT_IN_CALICO = "a row of Neutron, or a part of one, that has no form in Calico"
    MISSING_ROW = "a row of Neutron that refers to one that was not read"
    STRANGE_KEY = "the key does not have the form of its kind"
    OTHER_KIND = "the key belongs to another kind under the same prefix"
    """Not a fault: some of Calico's kinds share a prefix, and their readers skip each other's keys."""


class Bad(msgspec.Struct, frozen=True, gc=False):
    """A key whose value is not the expected object."""

    key: bytes
    reason: BadReason
    detail: str

    def __str__(self) -> str:
        return f"{self.key.decode(errors='backslashreplace')}: {self.reason.value} ({self.detail})"


def reason_for(error: Exception) -> BadReason:
    """The reason that an exception of the decoder stands for."""
    cause = error.__cause__ if isinstance(error, msgspec.ValidationError) and error.__cause__ else error
    match cause:
        case UnicodeDecodeError():
            return BadReason.NOT_UTF8
        case RecursionError():
            return BadReason.TOO_DEEP
        case NameRefused():
            return BadReason.WRONG_NAME
        case AddressRefused():
            return BadReason.WRONG_ADDRESS
        case msgspec.ValidationError() if str(cause).endswith(("`$.kind`", "`$.apiVersion`")):
            return BadReason.WRONG_KIND
        case msgspec.DecodeError() if not isinstance(cause, msgspec.ValidationError):
            return BadReason.NOT_JSON
    return BadReason.WRONG_SHAPE


def shortened(message: str, most: int = DETAIL_LIMIT) -> str:
    """The message on one printable line: its text is shortened, the place in the document is kept."""
    text, at, place = message.partition(" - at `")
    if len(text) > most:
        text = text[: most - 1] + "…"
    return "".join(c if c.isprintable() else "?" for c in text + at + place[:DETAIL_LIMIT])
