"""The configuration reference, in Markdown, from the structs alone. `python -m holdfast.config.output.reference` prints
it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby

from holdfast.config.loading.resolve import GROUPS, LEAVES, RESERVED
from holdfast.config.root import Config
from holdfast.config.schema.field import Group, GroupShape, Leaf, Section, groups, own_leaves, sections

_HEAD = """\
# Configuration reference

Holdfast reads one file, `/etc/holdfast/holdfast.yaml` (another one with `--config FILE` or `HOLDFAST_CONFIG`). Without
it, every field has its default. A value is taken from the command line, else from the environment, else from the file,
else it is the default; `holdfast config show --origin` says which, and `holdfast config check` names everything that is
wrong, with file, line and field.

- Every field can be given as the environment variable named with it. A list is written `a, b` or `[a, b]` there.
- The field decides what a text means: `no` in a field for text is the word "no", true or false are `true` and `false`.
- Durations have units: `250ms`, `5s`, `1m30s`, `2h`, `1d`. So have sizes: `512KiB`, `64MiB`, `2GiB`.
- A key may be written with hyphens instead of underscores: `flush-on-down` is `flush_on_down`.
- Keys that are unknown or given twice are refused; so are anchors, aliases, tags and several documents.
- A secret is never written into the configuration: a `…_file` field names the file it is in, or `credential:NAME` for a
  systemd credential (`LoadCredential=NAME:…` in the unit).
"""

_EACH = {GroupShape.NAMED: ".NAME", GroupShape.LIST: "[]", GroupShape.OPTIONAL: ""}


def reference() -> str:
    """The whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield _HEAD
    for path, fields in groupby(LEAVES.values(), key=lambda leaf: leaf.path[:-1]):
        section = _section(path)
        yield f"## `{'.'.join(path)}`: {_title(section)}"
        yield ""
        for leaf in fields:
            yield from _field(leaf, leaf.name)
            yield f"- **Environment:** `{leaf.variable}`"
            yield ""
    for path_, group in GROUPS.items():
        yield from _group(".".join(path_), group)
    yield "## Other environment variables"
    yield ""
    yield f"The command line reads {', '.join(f'`{name}`' for name in RESERVED)} for itself. Any other name that begins"
    yield "with `HOLDFAST_` is refused: a misspelt setting must not be ignored in silence."


def _section(path: tuple[str, ...]) -> type[Section]:
    section: type[Section] = Config
    for step in path:
        section = sections(section)[step]
    return section


def _title(section: type[Section]) -> str:
    return (section.__doc__ or "").strip().removesuffix(".")


def _group(path: str, group: Group) -> Iterator[str]:
    """A group and what is in it; its members come from the file alone."""
    here = path + _EACH[group.shape]
    yield f"## `{here}`: {_title(group.of)}"
    yield ""
    yield f"{group.about.what} In the file only."
    yield ""
    for name, leaf in own_leaves(group.of).items():
        yield from _field(leaf, f"{here}.{name}")
        yield ""
    for name, below in groups(group.of).items():
        yield from _group(f"{here}.{name}", below)


def _field(leaf: Leaf, name: str) -> Iterator[str]:
    about = leaf.about
    yield f"### `{name}`"
    yield ""
    yield about.what
    yield ""
    yield f"- **Value:** {_value(leaf)}"
    yield "- **Required**" if leaf.required else f"- **Default:** `{leaf.show(leaf.default)}`"
    if about.small:
        yield f"- **Too small:** {about.small}."
    if about.big:
        yield f"- **Too big:** {about.big}."


def _value(leaf: Leaf) -> str:
    value = f"list, each item: {leaf.kind.noun}" if leaf.many else leaf.kind.noun
    if leaf.about.least is not None and leaf.about.most is not None:
        value += f", from `{leaf.show(leaf.about.least)}` to `{leaf.show(leaf.about.most)}`"
    return value + ("; `null` for none" if leaf.optional else "")


if __name__ == "__main__":
    sys.stdout.write(reference())
