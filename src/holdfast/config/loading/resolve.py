"""Precedence: each value comes from the flag, else from the environment, else from the file, else it is the default.

Promises: every value of the result has an origin; every layer is checked, also where another overrides it; all
problems are reported at once, in the order of the file; and `resolve` never raises, whatever the input. Files of
`balancer.d/` add members to the groups of the balancer; they override nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import msgspec

from holdfast.config.loading.origin import ConfigProblem, ConfigRejected, Layer, Origin
from holdfast.config.loading.section import Notes, document_of, read_field, read_section, secret_refusal
from holdfast.config.loading.yaml import (
    Document,
    Fault,
    Position,
    ScalarNode,
    TableNode,
    dotted,
    read_document,
)
from holdfast.config.root import Config
from holdfast.config.schema.field import Field, FieldConflict, Section, children, fields, settings
from holdfast.config.schema.scalars import nearest, printable
from holdfast.config.sections.balancer import BalancerPart, BalancerSettings

ENVIRONMENT_PREFIX = "HOLDFAST_"

# Variables that the command line reads for itself.
RESERVED = ("HOLDFAST_CONFIG", "HOLDFAST_ETCD")

SETTINGS: Mapping[str, Field] = dict(settings(Config))
"""Every value and every group, by dotted path."""

VALUES: Mapping[str, Field] = {path: field for path, field in SETTINGS.items() if not field.is_group}


def variable(path: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_PREFIX + path.replace(".", "_").upper()


VARIABLES: Mapping[str, str] = {variable(path): path for path in VALUES}


class ConfigFile(msgspec.Struct, frozen=True):
    """A file: its name as people know it, and its content."""

    name: str
    data: bytes


class FlagValue(msgspec.Struct, frozen=True):
    """A value from the command line: the flag's own name, the field that it sets, and the text."""

    name: str
    path: str
    value: str


class Loaded(msgspec.Struct, frozen=True):
    """A valid configuration. `origins` has an entry for every value, and for every section and member in the file."""

    config: Config
    origins: Mapping[str, Origin]
    file: str | None = None
    warnings: tuple[ConfigProblem, ...] = ()
    """What is valid, and probably not meant."""
    parts: int = 0
    """Number of files in `balancer.d/`."""


class _Part(Section, frozen=True, kw_only=True):
    """A file of `balancer.d/`."""

    balancer: BalancerPart = BalancerPart()


def resolve(
    source: ConfigFile | None,
    environ: Mapping[str, str],
    flags: Sequence[FlagValue] = (),
    parts: Sequence[ConfigFile] = (),
) -> Loaded | ConfigRejected:
    """The effective configuration, or all problems of it. `parts` are the files of `balancer.d/`."""
    resolver = _Resolver()
    if source is not None:
        resolver.read_file(source)
    for part in parts:
        resolver.read_part(part)
    resolver.read_environment(environ)
    resolver.read_flags(flags)
    problems = {*resolver.problems, *resolver.found(lambda one: one.conflicts())}
    if problems:
        return ConfigRejected(tuple(sorted(problems)))
    warnings = tuple(sorted({*resolver.warnings, *resolver.found(lambda one: one.warnings())}))
    return Loaded(resolver.config, resolver.origins, source.name if source else None, warnings, len(parts))


class _Resolver:
    """The configuration as read so far, the origin of each value, and all problems."""

    def __init__(self) -> None:
        self.config = Config()
        self.origins: dict[str, Origin] = dict.fromkeys(VALUES, Origin())
        self.problems: list[ConfigProblem] = []
        self.warnings: list[ConfigProblem] = []
        self._unsound: set[str] = set()

    def read_file(self, source: ConfigFile) -> None:
        document, notes = read_document(source.data), Notes(VALUES)
        root = document.root
        if isinstance(root, TableNode):
            self.config = read_section(Config, root, "", notes)
        elif root is not None and not (isinstance(root, ScalarNode) and root.is_empty):
            sections = ", ".join(fields(Config))
            notes.refuse("", root, f"does not begin with a section: write one of {sections}, and a colon")
        self._note(source, document, notes)

    def read_part(self, source: ConfigFile) -> None:
        """Add the groups in a file of `balancer.d/`. A name that is known already is refused, with both places."""
        document, notes = read_document(source.data), Notes(VALUES)
        root = document.root
        part = _Part()
        if isinstance(root, TableNode):
            part = read_section(_Part, _without_settings(root, notes), "", notes)
        elif root is not None and not (isinstance(root, ScalarNode) and root.is_empty):
            notes.refuse("", root, "does not begin with balancer: write that, and healthchecks, backends or frontends")
        balancer = self.config.balancer
        for group in fields(BalancerPart):
            known, more = dict(getattr(balancer, group)), getattr(part.balancer, group)
            for name, member in more.items():
                path = f"balancer.{group}.{name}"
                if name in known:
                    sentence = f"is defined in {self.origins[path]} already: remove one"
                    notes.faults.append(Fault(path, notes.places[path], sentence))
                known.setdefault(name, member)
            balancer = msgspec.structs.replace(balancer, **{group: known})
        self.config = msgspec.structs.replace(self.config, balancer=balancer)
        self._note(source, document, notes)

    def _note(self, source: ConfigFile, document: Document, notes: Notes) -> None:
        """Keep the problems of a file, and the places of its values."""

        def origin(mark: Position) -> Origin:
            return Origin(Layer.FILE, printable(source.name), mark.line, mark.column)

        for fault in (*document.faults, *notes.faults):
            self.problems.append(ConfigProblem(origin(fault.mark), fault.path, fault.sentence))
        self.origins |= {path: origin(mark) for path, mark in notes.places.items() if path}
        self._unsound |= notes.unsound

    def read_environment(self, environ: Mapping[str, str]) -> None:
        for name in sorted(environ):
            if name.startswith(ENVIRONMENT_PREFIX) and name not in RESERVED:
                origin = Origin(Layer.ENVIRONMENT, printable(name))
                if name in VARIABLES:
                    self._read_text(VARIABLES[name], environ[name], origin)
                elif refusal := _secret_variable(name):
                    self.problems.append(ConfigProblem(origin, "", refusal))
                else:  # Kubernetes sets such variables for a service that is named holdfast
                    self.warnings.append(ConfigProblem(origin, "", _unknown_variable(name)))

    def read_flags(self, flags: Sequence[FlagValue]) -> None:
        for flag in flags:
            origin = Origin(Layer.FLAG, printable(flag.name))
            if flag.path in VALUES:
                self._read_text(flag.path, flag.value, origin)
            else:
                self.problems.append(ConfigProblem(origin, printable(flag.path), _unknown_path(flag.path)))

    def _read_text(self, path: str, text: str, origin: Origin) -> None:
        document, notes = document_of(VALUES[path], text), Notes()
        if document.root is not None and not document.faults:
            value = read_field(VALUES[path], document.root, path, notes)
            if value is not msgspec.UNSET:
                self.config = replaced(self.config, path, value)
                self.origins[path] = origin
                return
        self._unsound.add(path)
        faults = [*notes.faults, *(Fault(path + fault.path, *fault[1:]) for fault in document.faults)]
        self.problems += [ConfigProblem(origin, fault.path, fault.sentence) for fault in faults]

    def found(self, say: Callable[[Section], Iterator[FieldConflict]]) -> Iterator[ConfigProblem]:
        """Problems or warnings that `say` yields about each section."""
        return self._found(say, self.config, "")

    def _found(
        self, say: Callable[[Section], Iterator[FieldConflict]], section: Section, path: str
    ) -> Iterator[ConfigProblem]:
        for conflict in say(section):
            names = [f"{path}{field}" if field else path.removesuffix(".") for field in conflict.fields]
            # A field that could not be read is a problem already; what follows from it is noise.
            if self._unsound.isdisjoint(names):
                yield self._problem(names, conflict.sentence)
        for name, below in children(section):
            yield from self._found(say, below, f"{path}{name}.")

    def _problem(self, names: list[str], sentence: str) -> ConfigProblem:
        """Report a conflict at a value that was set explicitly: a default cannot be edited."""
        first = names[0]
        given = next((name for name in names if name in self.origins and self.origins[name].layer), first)
        if given != first and first in VALUES:
            shown = VALUES[first].show(value_at(self.config, first))
            sentence = f"does not fit {first} ({shown}), which {sentence}"
        return ConfigProblem(self.origins.get(given, Origin()), given, sentence)


def _without_settings(root: TableNode, notes: Notes) -> TableNode:
    """Take out of a file of `balancer.d/` what belongs into the main file, and refuse it by name."""

    def kept(node: TableNode, path: str, elsewhere: Set[str]) -> TableNode:
        entries = []
        for key, below in node.entries:
            if key.text.replace("-", "_") in elsewhere:
                here = dotted(path, key.text)
                sentence = f"belongs into the main file: here are only {', '.join(fields(BalancerPart))}"
                notes.faults.append(Fault(here, key.mark, sentence))
            else:
                entries.append((key, below))
        return TableNode(tuple(entries), node.mark)

    top = kept(root, "", fields(Config).keys() - {"balancer"})
    settings_ = fields(BalancerSettings).keys() - fields(BalancerPart).keys()
    return TableNode(
        tuple(
            (key, kept(below, "balancer", settings_) if isinstance(below, TableNode) else below)
            for key, below in top.entries
        ),
        top.mark,
    )


def value_at(config: Any, path: str) -> Any:
    """The value at a dotted path."""
    for step in path.split("."):
        config = getattr(config, step)
    return config


def replaced(section: Any, path: str, value: Any) -> Any:
    """The section with another value at a dotted path."""
    head, _, rest = path.partition(".")
    new = replaced(getattr(section, head), rest, value) if rest else value
    return msgspec.structs.replace(section, **{head: new})


def _secret_variable(name: str) -> str:
    """Return the refusal of a secret in the environment; empty for anything else."""
    file_field = VARIABLES.get(f"{name}_FILE", "")
    return (file_field and secret_refusal(name, file_field, VALUES)) or ""


def _unknown_variable(name: str) -> str:
    # The common prefix would make all names similar.
    bare = {known.removeprefix(ENVIRONMENT_PREFIX): known for known in (*VARIABLES, *RESERVED)}
    match = nearest(name.removeprefix(ENVIRONMENT_PREFIX), bare)
    return f"is not known, and has no effect{f'; did you mean {bare[match]}?' if match else ''}"


def _unknown_path(path: str) -> str:
    section, _, name = path.rpartition(".")
    if refusal := secret_refusal(name, f"{path}_file", VALUES):
        return refusal
    # In a section that exists, only its own fields are meant; the section's name would make all of them similar.
    siblings = {one.rpartition(".")[2]: one for one in VALUES if one.rpartition(".")[0] == section}
    match = siblings.get(nearest(name, siblings) or "") if siblings else nearest(path, VALUES)
    return f"is not a known field{f'; did you mean {match}?' if match else ''}"
