"""Distinct objects: refuses backends of one frontend that would be one object in the configured dataplane."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.balancer.services.resolved import resolve_services
from holdfast.balancer.vip import BackendEntry, Canonical, Objects, VipKey
from holdfast.config import ConfigProblem, ConfigRejected, Loaded, Origin


def indistinct(loaded: Loaded, canonical: Canonical) -> ConfigRejected | None:
    """Refuse a configuration whose objects the dataplane cannot tell apart; `canonical` is its form of them."""
    problems = tuple(sorted(_problems(loaded, canonical)))
    return ConfigRejected(problems) if problems else None


def _problems(loaded: Loaded, canonical: Canonical) -> Iterator[ConfigProblem]:
    settings = loaded.config.balancer
    services = resolve_services(settings)
    for name, frontend in services.frontends.items():
        names = list(frontend.backends())
        keys = [VipKey(frontend.vip, services.backends[each].identity) for each in names]
        objects: Objects = [(VipKey(frontend.vip), frontend.settings), *((key, BackendEntry(0)) for key in keys)]
        first: dict[VipKey, str] = {}
        for each, (key, _) in zip(names, canonical(frontend.vip, objects)[1:], strict=True):
            if first.setdefault(key, each) != each:
                path = f"balancer.frontends.{name}"
                sentence = (
                    f"has the backends {first[key]} and {each}, which are one in the dataplane "
                    f"{settings.dataplane.kind}: remove one"
                )
                yield ConfigProblem(loaded.origins.get(path, Origin()), path, sentence)
