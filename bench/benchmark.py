"""Benchmark: options, figures, and the function that measures them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 -- O and F: options and figures
F = TypeVar("F", bound=msgspec.Struct)


class Unmeasurable(Exception):
    """The benchmark cannot run here, or did not finish. The message is one sentence: what is missing."""


@dataclass(frozen=True, slots=True)
class Benchmark(Generic[O, F]):
    """One benchmark. `measure` has stopped everything that it started when it returns."""

    options: type[O]
    measure: Callable[[O], F]
