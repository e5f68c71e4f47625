"""Removes secrets from texts. Pure.

A secret is removed wherever it appears: the contents of every file that the configuration names as secret, passwords
and queries in URLs, values of HTTP headers, tokens and private keys. What looks like a secret and is none is removed as
well; a dump with too little in it is asked for again, one with a password in it cannot be taken back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

REMOVED = "<removed>"
_SHORTEST = 4
"""Characters. Removing a shorter secret by its text would tear every word apart."""

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL), REMOVED),
    # Up to the last @: a password may have / or ' in it.
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s\"]*@", re.IGNORECASE), rf"\1{REMOVED}@"),
    # A token of the API; the names of metrics have no capitals.
    (re.compile(r"holdfast_(?=[\w-]{0,42}[A-Z])[\w-]{43}"), REMOVED),
    (re.compile(r"(\bhttps?://[^\s\"'?]*\?)[^\s\"']+", re.IGNORECASE), rf"\1{REMOVED}"),
    (re.compile(r"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{4,}"), rf"\1{REMOVED}"),
    (
        re.compile(
            r"([\"']?\b(?![\w-]*_files?[\"']?\s*[:=]\s*[\"']?/)[\w-]*(?:authorization|cookie|password|passwd|secret|token|api[_-]?key)[\w-]*[\"']?\s*[:=]\s*)"
            r"(?!null\b|None\b|\"?credential:)(\"[^\"]*\"|'[^']*'|[^\s,}\]]+)",
            re.IGNORECASE,
        ),
        rf"\1{REMOVED}",
    ),
)


def scrubbed(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without these secrets, and without whatever looks like one. Paths of secret files stay."""
    forms = {form for secret in secrets for form in (secret, *_in_json(secret))}
    for secret in sorted(forms, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, REMOVED)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def _in_json(secret: str) -> Iterable[str]:
    """Return the secret as JSON has it, with and without escapes of other letters than ASCII."""
    return (json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
