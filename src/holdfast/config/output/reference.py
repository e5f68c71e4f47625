"""The configuration reference in Markdown, generated from the structs.

`python -m holdfast.config.output.reference` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from holdfast.config.loading.resolve import RESERVED, VALUES, variable
from holdfast.config.root import Config
from holdfast.config.schema.field import Field, Section, Shape, fields

_HEAD = """\
# Configuration reference

Holdfast reads one file, `/etc/holdfast/holdfast.yaml` (another one with `--config FILE` or `HOLDFAST_CONFIG`). Without
it, every field has its default. A value is taken from the command line, else from the environment, else from the file,
else it is the default; `holdfast config show --origin` shows which, and `holdfast config check` reports all errors,
each with file, line and field.

- Every field can be set by the environment variable named with it. A list is written `a, b` or `[a, b]` there.
- The field decides what a text means: `no` in a field for text is the word "no", true or false are `true` and `false`.
- Durations have units: `250ms`, `5s`, `1m30s`, `2h`, `1d`. So have sizes: `512KiB`, `64MiB`, `2GiB`.
- A key may be written with hyphens instead of underscores: `flush-on-down` is `flush_on_down`.
- Keys that are unknown or given twice are refused; so are anchors, aliases, tags and several documents.
- `holdfast config reload` (or SIGHUP) reads the file again. An invalid one is refused, and the running configuration
  stays. Each field says whether a reload applies it or the daemon must be restarted; the answer to a reload lists both.
- Health checks, backends and frontends may also be in files of the folder `balancer.d` beside it: `balancer:` with
  these groups and nothing else, in files whose names end in `.yaml`. A name in two files is refused.
- A secret is never written into the configuration: a `…_file` field names the file it is in, or `credential:NAME` for a
  systemd credential (`LoadCredential=NAME:…` in the unit).
"""


def reference() -> str:
    """The whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield _HEAD
    for name, field in fields(Config).items():
        yield from _section(name, field)
    yield "## Other environment variables"
    yield ""
    yield f"The command line reads {', '.join(f'`{name}`' for name in RESERVED)} for itself. Any other name that begins"
    yield "with `HOLDFAST_` has no effect, and is a warning: Kubernetes sets some for a service of that name."


def _section(path: str, holder: Field, *, on_reload: bool = False) -> Iterator[str]:
    """The section that a field holds: its own fields first, then the sections in it."""
    section, on_reload = holder.section or Section, on_reload or holder.doc.on_reload
    yield f"## `{path}`: {(section.__doc__ or '').strip().removesuffix('.')}"
    yield ""
    if holder.is_group:
        yield f"{holder.doc.what} In the file only."
        yield ""
    for name, field in fields(section).items():
        if field.scalar is not None:
            yield from _field(f"{path}.{name}", field, on_reload=on_reload or field.doc.on_reload)
    for name, field in fields(section).items():
        if field.section is not None:
            yield from _section(f"{path}.{name}{field.shape.value}", field, on_reload=on_reload)


def _field(path: str, field: Field, *, on_reload: bool) -> Iterator[str]:
    doc = field.doc
    yield f"### `{path}`"
    yield ""
    yield doc.what
    yield ""
    yield f"- **Value:** {_value(field)}"
    yield "- **Required**" if field.required else f"- **Default:** `{field.show(field.default)}`"
    if doc.small:
        yield f"- **Too small:** {doc.small}."
    if doc.big:
        yield f"- **Too big:** {doc.big}."
    yield f"- **Reload:** {'applied' if on_reload else 'needs a restart of the daemon'}."
    if path in VALUES:
        yield f"- **Environment:** `{variable(path)}`"
    yield ""


def _value(field: Field) -> str:
    value = f"list, each item: {field.noun}" if field.shape is Shape.LIST else field.noun
    if field.doc.least is not None and field.doc.most is not None:
        value += f", from `{field.show(field.doc.least)}` to `{field.show(field.doc.most)}`"
    return value + ("; `null` for none" if field.optional else "")


if __name__ == "__main__":
    sys.stdout.write(reference())
