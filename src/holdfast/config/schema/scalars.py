"""Scalars: parsing of one text into a value, and writing of the value as text.

The field decides what a text means, never its looks: `no` in a field for text is the word "no", and `yes` in a field
for true or false is refused. Each reader raises `Unfit` with the rest of a sentence that begins with the field's name.
Reading what a `show_…` function wrote gives the same value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from holdfast.config.schema.pattern import NotAPattern, compile_pattern

_DURATION_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION_PART = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?(ms|[dhms])")
_LONGEST = timedelta(days=3_650)

_SIZE_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
_SIZE = re.compile(r"([0-9]{1,15})(TiB|GiB|MiB|KiB|B)")
_DECIMAL_SIZE = re.compile(r"([0-9]{1,15}) ?([kKmMgGtT])[bB]?")

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CREDENTIAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")

CREDENTIAL = "credential:"


class Unfit(ValueError):
    """A text that its field does not accept. The message is the rest of a sentence, after the field's name."""


def quote(given: str) -> str:
    """Quote a text for a message: at most 60 characters, on one line."""
    shown = given if len(given) <= 60 else given[:57] + "..."
    return f"'{printable(shown)}'"


def printable(given: str) -> str:
    """Escape everything that a terminal would not show or would interpret."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in given)


def closest(given: str, known: Iterable[str]) -> str:
    """'; did you mean x?' when a known word is similar, else nothing."""
    match = nearest(given, known)
    return f"; did you mean {match}?" if match else ""


def nearest(given: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar."""
    return next(iter(difflib.get_close_matches(given[:100], list(known), n=1)), None)


def text(given: str) -> str:
    if not given.isprintable():
        raise Unfit(f"is {quote(given)}: remove the line breaks and other characters that cannot be printed")
    return given


def boolean(given: str) -> bool:
    if given not in ("true", "false"):
        raise Unfit(f"is {quote(given)}: write true or false")
    return given == "true"


def show_boolean(value: bool) -> str:
    return "true" if value else "false"


def integer(given: str) -> int:
    if not _INTEGER.fullmatch(given):
        raise Unfit(f"is {quote(given)}, which is not a whole number: write it in decimal digits, such as 5")
    return int(given)


def choice(given: str, options: tuple[str, ...]) -> str:
    if given not in options:
        raise Unfit(f"is {quote(given)}: write {', '.join(options[:-1])} or {options[-1]}{closest(given, options)}")
    return given


def duration(given: str) -> timedelta:
    """Read `1m30s`: units d, h, m, s and ms from big to small, each at most once; a fraction down to a millisecond."""
    parts = list(_DURATION_PART.finditer(given))
    if not parts or "".join(part.group() for part in parts) != given:
        raise Unfit(f"is {quote(given)}, which is not a duration: {_duration_advice(given)}")
    units = [list(_DURATION_UNITS).index(part[3]) for part in parts]
    if units != sorted(set(units)):
        raise Unfit(f"is {quote(given)}: write each unit once, from the biggest to the smallest, such as 1m30s")
    milliseconds = sum(_milliseconds(given, part) for part in parts)
    if milliseconds > _LONGEST // timedelta(milliseconds=1):
        raise Unfit(f"is {quote(given)}, which is longer than ten years")
    return timedelta(milliseconds=milliseconds)


def _milliseconds(given: str, part: re.Match[str]) -> int:
    unit = _DURATION_UNITS[part[3]]
    fraction: str = part[2] or ""
    power: int = 10 ** len(fraction)
    whole, rest = divmod(int(fraction or "0") * unit, power)
    if rest:
        raise Unfit(f"is {quote(given)}, which is finer than a millisecond")
    return int(part[1]) * unit + whole


def _duration_advice(given: str) -> str:
    if re.fullmatch(r"[0-9]{1,15}(\.[0-9]+)?", given):
        return f"a number needs a unit, such as {given}s (d, h, m, s or ms)"
    return "write it with units, such as 250ms, 5s, 1m30s, 2h or 1d"


def show_duration(value: timedelta) -> str:
    """Write whole milliseconds, in the biggest units that fit."""
    left = value // timedelta(milliseconds=1)
    shown = ""
    for unit, size in _DURATION_UNITS.items():
        count, left = divmod(left, size)
        shown += f"{count}{unit}" if count else ""
    return shown or "0s"


def size(given: str) -> int:
    match = _SIZE.fullmatch(given)
    if not match:
        raise Unfit(f"is {quote(given)}, which is not a size: {_size_advice(given)}")
    count: int = int(match[1])
    return count * _SIZE_UNITS[match[2]]


def _size_advice(given: str) -> str:
    if match := _DECIMAL_SIZE.fullmatch(given):
        return f"units are powers of 1,024, write {match[1]}{match[2].upper()}iB"
    if re.fullmatch(r"[0-9]{1,15}", given):
        return f"a number needs a unit, such as {given}MiB (B, KiB, MiB, GiB or TiB)"
    return "write it with a unit, such as 64MiB"


def show_size(value: int) -> str:
    unit, factor = next((item for item in _SIZE_UNITS.items() if value and value % item[1] == 0), ("B", 1))
    return f"{value // factor}{unit}"


def name(given: str) -> str:
    if not _NAME.fullmatch(given):
        raise Unfit(
            f"is {quote(given)}: a name is up to 63 letters, digits, dots, dashes and underscores, "
            "and begins with a letter or digit"
        )
    return given


def path(given: str) -> str:
    text(given)
    if not given.startswith("/"):
        raise Unfit(f"is {quote(given)}: write an absolute path, one that begins with /")
    if ".." in given.split("/"):
        raise Unfit(f"is {quote(given)}: write the path without ..")
    return given


def address(given: str) -> str:
    """Read one IPv4 or IPv6 address and return its canonical spelling."""
    try:
        parsed = ip_address(given)
    except ValueError:
        raise Unfit(f"is {quote(given)}, which is not an IP address: write 192.0.2.1 or 2001:db8::1") from None
    if isinstance(parsed, IPv6Address) and (parsed.scope_id or parsed.ipv4_mapped):
        raise Unfit(f"is {quote(given)}: write the address without a %zone, and IPv4 as IPv4")
    return str(parsed)


def prefix(given: str) -> str:
    """Read one IPv4 or IPv6 prefix and return its canonical spelling."""
    try:
        return str(ip_network(given))
    except ValueError:
        raise Unfit(
            f"is {quote(given)}, which is not a prefix: write 10.28.0.0/16 or fd28::/48, without bits after its length"
        ) from None


def within(address: str, prefixes: Iterable[str]) -> bool:
    """Return whether an address is inside one of the prefixes; True without any. An IPv4 address that is written as
    IPv6 is the IPv4 address to which packets go."""
    networks = [ip_network(one) for one in prefixes]
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return not networks or any(found in one for one in networks)


def regex(given: str) -> str:
    try:
        compile_pattern(given)
    except NotAPattern as error:
        raise Unfit(f"is {quote(given)}, which is not a regular expression in RE2's syntax: {error}") from None
    return given


def file(given: str) -> str:
    if not given.startswith(CREDENTIAL):
        return path(given)
    if not _CREDENTIAL.fullmatch(given.removeprefix(CREDENTIAL)):
        raise Unfit(
            f"is {quote(given)}: after {CREDENTIAL} comes the name of a systemd credential, such as etcd-password"
        )
    return given


def endpoint(given: str) -> str:
    """Read `https://etcd-1:2379`. A user name or password in it is refused, and never repeated in the message."""
    text(given)
    if "@" in given:
        raise Unfit("holds a user name: take everything up to @ out of the URL, and use user and password_file")
    try:
        url = urlsplit(given)
        port = url.port
    except ValueError as error:
        raise Unfit(f"is {quote(given)}, which is not a URL: {error}") from None
    if url.scheme not in ("http", "https") or not given.startswith(f"{url.scheme}://"):
        raise Unfit(f"is {quote(given)}: write http://HOST:PORT or https://HOST:PORT")
    if not url.hostname or not ("[" in url.netloc or _HOST_NAME.fullmatch(url.hostname)):
        raise Unfit(f"is {quote(given)}, in which no host can be recognised: write {url.scheme}://HOST:PORT")
    if port is None or port == 0:
        raise Unfit(
            f"is {quote(given)}, which has no port: etcd's is usually {url.scheme}://{url.netloc.rstrip(':')}:2379"
        )
    if url.path not in ("", "/") or url.query or url.fragment:
        raise Unfit(f"is {quote(given)}: nothing may follow the port")
    return f"{url.scheme}://{url.netloc}"


def is_loopback(url: str) -> bool:
    """Tell whether traffic to this endpoint stays on the machine, as far as the URL shows."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def listen_or_off(given: str) -> str:
    """Check where a server without a default address listens: `off`, or IP:PORT."""
    if given == "default":
        raise Unfit(f"is {quote(given)}, and there is no default: write IP:PORT such as 127.0.0.1:9620, or off")
    return listen(given)


def listen(given: str) -> str:
    """Check where a server listens: `off`, `default`, or IP:PORT with an IPv6 address in brackets."""
    if given in ("off", "default"):
        return given
    host, colon, port = given.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host != bare
    if not colon or not (port.isascii() and port.isdecimal() and int(port) <= 65_535) or bracketed != (":" in bare):
        raise Unfit(f"is {quote(given)}: write IP:PORT such as 127.0.0.1:9621 or [::1]:9621, or off")
    address(bare)
    return given
