"""Holdfast: a network control plane that stays right through its own failures."""

__version__ = "0.1.0"
