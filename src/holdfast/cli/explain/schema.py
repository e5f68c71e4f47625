"""`holdfast explain schema PATH`: one section or field of the configuration, as the reference describes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

import click

from holdfast.config.output.reference import reference
from holdfast.config.schema.scalars import closest

_HEADING = re.compile(r"^##+ `([^`]+)`")


def lines(path: str) -> Iterator[str]:
    """Yield the description of a path such as `store.ttl`, `balancer.frontends.web.pools` or `balancer`."""
    wanted = path.replace("-", "_").strip(".")
    topics = _topics()
    found = next((topic for topic in topics if _pattern(topic).fullmatch(wanted)), None)
    if found is None:
        raise click.ClickException(f"the configuration has no {path}{closest(wanted, list(topics))}")
    yield found
    yield from (line.replace("**", "").replace("`", "") for line in topics[found])
    below = [topic for topic in topics if topic.startswith(f"{found}.") and topic.count(".") == found.count(".") + 1]
    if below:
        yield ""
        yield "Below it:"
        yield from (f"  {topic}" for topic in below)


@cache
def _topics() -> Mapping[str, list[str]]:
    """Descriptions by path, in the order of the reference."""
    topics: dict[str, list[str]] = {}
    body: list[str] = []
    for line in reference().splitlines():
        heading = _HEADING.match(line)
        if heading:
            body = topics[heading[1]] = [rest] if (rest := line[heading.end() :].lstrip(": ")) else []
        elif line.startswith("## "):
            body = []
        elif line:
            body.append(line)
    return topics


def _pattern(topic: str) -> re.Pattern[str]:
    """NAME stands for any name, [] for any place of a list."""
    return re.compile(re.escape(topic).replace(r"\.NAME", r"\.[^.]+").replace(r"\[\]", r"(\[\d*\])?"))
