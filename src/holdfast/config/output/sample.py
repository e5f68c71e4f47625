"""A configuration file with every setting in a comment, generated from the structs.

Promises: as it is, the file changes nothing; without its comment signs, each setting has its default. A package
installs it as `/etc/holdfast/holdfast.yaml`. `python -m holdfast.config.output.sample` prints it.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator

from holdfast.config.root import Config
from holdfast.config.schema.field import Field, Section, Shape, fields

_HEAD = """\
# Configuration of the Holdfast daemons on this machine. Every setting is here with its default, as a comment: remove
# the "#" before a setting and before the sections that it is in. An empty file is a complete one.
#
# Check it with `holdfast config check`, apply it with `holdfast config reload` or a restart of the daemon; the
# configuration reference says which settings need the restart. Health checks, backends and frontends have examples in
# /usr/share/doc/holdfast/examples.
"""

_WIDTH = 116


def sample() -> str:
    """The whole file."""
    return "\n".join([_HEAD, *_section(Config, 0)]).rstrip("\n") + "\n"


def uncommented(text: str) -> str:
    """The file with every setting switched on."""
    return re.sub(r"^( *)#(?=\S)", r"\1", text, flags=re.MULTILINE)


def _section(section: type[Section], depth: int) -> Iterator[str]:
    """The settings first, then the sections in it, as on the reference page."""
    known = fields(section)
    for name, field in known.items():
        if field.scalar is not None:
            yield from _comment(field, depth)
            yield f"{'  ' * depth}#{name}: {field.show(field.default)}"
    for name, field in known.items():
        if field.section is None or field.is_group:
            continue
        if depth == 0:
            yield ""
            yield from _wrapped((field.section.__doc__ or "").strip(), 0)
        yield f"{'  ' * depth}#{name}:"
        yield from _section(field.section, depth + 1)


def _comment(field: Field, depth: int) -> Iterator[str]:
    value = f"list, each item: {field.noun}" if field.shape is Shape.LIST else field.noun
    yield from _wrapped(f"{field.doc.what.replace('`', '')} ({value.replace('`', '')})", depth)


def _wrapped(text: str, depth: int) -> Iterator[str]:
    lead = "  " * depth + "# "
    yield from textwrap.wrap(text, _WIDTH, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(sample())
