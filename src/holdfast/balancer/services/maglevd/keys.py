"""Keys of maglevd's configuration, and ours for each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Value = str | int | bool


def _negated(given: Value) -> Value:
    return not given if isinstance(given, bool) else given


def _text(given: Value) -> Value:
    return str(given)


_CHECK: Mapping[str, tuple[str, Callable[[Value], Value] | None]] = {
    **{key: (key, None) for key in ("type", "port", "timeout", "rise", "fall")},
    **{key: (key, None) for key in ("interval", "fast-interval", "down-interval")},
    "probe-ipv4-src": ("source-ipv4", None),
    "probe-ipv6-src": ("source-ipv6", None),
    "params.path": ("path", None),
    "params.host": ("host", None),
    "params.response-code": ("status", _text),
    "params.response-regexp": ("body", _text),
    "params.server-name": ("sni", None),
    "params.insecure-skip-verify": ("verify", _negated),
}
_FRONTEND = ("description", "address", "protocol", "port", "flush-on-down", "src-ip-sticky")
_MEMBER = "frontends.*.pools.*.backends.*"

RULES: Mapping[str, tuple[str, Callable[[Value], Value] | None]] = {
    "healthchecker.transition-history": ("transition-history", None),
    "healthchecker.netns": ("netns", None),
    **{f"vpp.lb.{key}": (key, None) for key in ("sync-interval", "startup-min-delay", "startup-max-delay")},
    "vpp.lb.ipv4-src-address": ("dataplane.vpp.source-ipv4", None),
    "vpp.lb.ipv6-src-address": ("dataplane.vpp.source-ipv6", None),
    "vpp.lb.sticky-buckets-per-core": ("dataplane.vpp.sticky-buckets", None),
    "vpp.lb.flow-timeout": ("dataplane.vpp.flow-timeout", None),
    **{f"healthchecks.*.{key}": (f"healthchecks.*.{ours}", convert) for key, (ours, convert) in _CHECK.items()},
    **{f"backends.*.{key}": (f"backends.*.{key}", None) for key in ("address", "healthcheck", "enabled")},
    **{f"frontends.*.{key}": (f"frontends.*.{key}", None) for key in _FRONTEND},
    "frontends.*.pools.*.name": ("frontends.*.pools.*.name", None),
    f"{_MEMBER}.weight": (f"{_MEMBER}.weight", None),
}
"""Keys of maglevd below `maglev`, with ours below `balancer`; `*` is a name, or a place in a list."""

_TABLES = {rule.rpartition(".")[0] for rule in RULES}
KNOWN_TABLES = {".".join(table.split(".")[: depth + 1]) for table in _TABLES for depth in range(table.count(".") + 1)}
