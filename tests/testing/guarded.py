"""Functions of several kinds, for tests of replacing them."""

from __future__ import annotations


def greeting(name: str) -> str:
    return f"hello {name}"


class Guarded:
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @staticmethod
    def fixed(one: str) -> str:
        return one

    @classmethod
    def of_class(cls, one: str) -> str:
        return cls.__name__ + one
