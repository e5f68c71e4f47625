"""Origins of values, and problems at those origins."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Layer(IntEnum):
    """Sources of values; a higher one overrides those below it."""

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
    """One problem. Problems sort by place: the file line by line, then the environment, then flags."""

    origin: Origin
    path: str
    sentence: str

    def __str__(self) -> str:
        place = str(self.origin)
        if self.origin.column:
            place += f":{self.origin.column}"
        return f"{place}: {self.path}: {self.sentence}" if self.path else f"{place}: {self.sentence}"


class ConfigRejected(msgspec.Struct, frozen=True):
    """All problems of a configuration. `unreadable` is set when the file could not even be read."""

    problems: tuple[ConfigProblem, ...]
    unreadable: bool = False

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
