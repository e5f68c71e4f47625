"""Names in keys: joining, escaping and splitting of their parts, without ambiguity.

Two escapings, both Calico's. In resource names parts are joined by `-` and a `-` inside a part is doubled; in Felix's
keys `/` and `%` are written `%2f` and `%25`. A name that could not be parsed back is refused when it is built.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.model.base.address import shown

_HIDDEN = "\0"
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]").search


class NameRefused(ValueError):
    """The name cannot be part of a key. The message is one sentence."""


def segment(text: str) -> str:
    """Check that the text can be one segment of a key."""
    if "/" in text:
        raise NameRefused(f"{shown(text)} has a slash in it, which separates the parts of a key; leave it out")
    return segments(text)[0]


def segments(text: str) -> list[str]:
    """Split a key into segments and refuse empty ones."""
    if not text.isprintable() and _UNPRINTABLE(text):
        raise NameRefused(f"{shown(text)} has control characters in it; leave them out")
    parts = text.split("/")
    if "" in parts:
        raise NameRefused(f"{shown(text)} has an empty name in it; give it at least one character")
    return parts


def part(text: str) -> str:
    """Check that the text can be one part of a joined name."""
    _unambiguous(text)
    return segment(text)


def _unambiguous(text: str) -> None:
    if not text or text[0] == "-" or text[-1] == "-":
        raise NameRefused(f"{shown(text)} is empty or begins or ends with a hyphen, which makes the name ambiguous")


def join(parts: Sequence[str]) -> str:
    """Join parts to one name: `compute-1`, `openstack` → `compute--1-openstack`."""
    return "-".join([part(p).replace("-", "--") for p in parts])


def split(name: str, count: int) -> list[str]:
    """Split a joined name into exactly `count` parts."""
    parts = [p.replace(_HIDDEN, "-") for p in segment(name).replace("--", _HIDDEN).split("-")]
    if len(parts) != count:
        raise NameRefused(f"{shown(name)} has {len(parts)} parts, not {count}")
    for each in parts:
        _unambiguous(each)
    return parts


def escape(text: str) -> str:
    """Escape the text to one segment of a Felix key."""
    if "%" in text:
        text = text.replace("%", "%25")
    return segment(text.replace("/", "%2f"))


def unescape(text: str) -> str:
    """Revert `escape` for one segment. Refuses a percent sign that begins no escape."""
    if "%" not in text:
        return text
    # Lower case only, as Felix writes it: otherwise two keys could name one endpoint.
    if text.count("%") != text.count("%2f") + text.count("%25"):
        raise NameRefused(f"{shown(text)} has a percent sign in it that is neither %2f nor %25")
    return text.replace("%2f", "/").replace("%25", "%")
