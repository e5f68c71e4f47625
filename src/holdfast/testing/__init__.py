"""Public fakes and fixtures for testing what is built on Holdfast: docs/developing/testing.md.

`FakeStore` is an etcd in memory with every fault on demand. Only tests and the lab import this package.
"""

from holdfast.testing.client import FakeClient
from holdfast.testing.link import Fate, Link
from holdfast.testing.store import FakeStore, Write

__all__ = ["FakeClient", "FakeStore", "Fate", "Link", "Write"]
