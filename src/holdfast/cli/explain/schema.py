"""`holdfast explain schema PATH`: one section or field of the configuration, as the reference describes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TypedDict

import click

from holdfast.config.output.reference import reference
from holdfast.config.schema.scalars import closest

_HEADING = re.compile(r"^##+ `([^`]+)`")


class Topic(TypedDict):
    """Description of a section or field, as `-o json` prints it."""

    path: str
    description: list[str]
    below: list[str]
    """Paths of what the section has."""


def topic(path: str) -> Topic:
    """Return the description of a path such as `store.ttl`, `balancer.frontends.web.pools` or `balancer`."""
    wanted = path.replace("-", "_").strip(".")
    topics = _topics()
    found = next((one for one in topics if _pattern(one).fullmatch(wanted)), None)
    if found is None:
        raise click.ClickException(f"the configuration has no {path}{closest(wanted, list(topics))}")
    below = [one for one in topics if one.startswith(f"{found}.") and one.count(".") == found.count(".") + 1]
    description = [line.replace("**", "").replace("`", "") for line in topics[found]]
    return Topic(path=found, description=description, below=below)


def lines(topic: Topic) -> Iterator[str]:
    yield topic["path"]
    yield from topic["description"]
    if topic["below"]:
        yield ""
        yield "Below it:"
        yield from (f"  {path}" for path in topic["below"])


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
