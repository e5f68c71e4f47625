"""Where a value came from, and what is wrong with it there. A later layer overrides the ones before it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec


class Layer(IntEnum):
    """The sources of values, in ascending precedence."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


class Origin(msgspec.Struct, frozen=True, order=True):
    """The place of one value: `name` is the file, the variable or the flag. Lines and columns count from 1."""

    layer: Layer = Layer.DEFAULT
    name: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        match self.layer:
            case Layer.DEFAULT:
                return "default"
            case Layer.FILE:
                return f"{self.name}:{self.line}" if self.line else self.name
            case Layer.ENVIRONMENT:
                return f"environment {self.name}"
            case Layer.FLAG:
                return f"flag {self.name}"


class ConfigProblem(msgspec.Struct, frozen=True, order=True):
    """One thing that is wrong. Problems sort by place: the file line by line, then the environment, then flags."""

    origin: Origin
    path: str
    sentence: str

    def __str__(self) -> str:
        place = str(self.origin)
        if self.origin.column:
            place += f":{self.origin.column}"
        return f"{place}: {self.path}: {self.sentence}" if self.path else f"{place}: {self.sentence}"


class ConfigRejected(msgspec.Struct, frozen=True):
    """Everything that is wrong with a configuration. `unreadable` when the file could not even be read."""

    problems: tuple[ConfigProblem, ...]
    unreadable: bool = False

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def reject(problems: Iterable[ConfigProblem]) -> ConfigRejected:
    """The problems in the order in which a person goes through them, each once."""
    return ConfigRejected(tuple(sorted(set(problems))))
