"""What a benchmark is: its options, its figures, and the function that turns the first into the second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 -- O and F: options and figures
F = TypeVar("F", bound=msgspec.Struct)


class Unmeasurable(Exception):
    """This benchmark cannot be run here, or not to its end. The message is one sentence: what is missing."""


@dataclass(frozen=True, slots=True)
class Benchmark(Generic[O, F]):
    """One benchmark. `measure` owns everything that it starts, and has ended it when it returns."""

    options: type[O]
    measure: Callable[[O], F]
