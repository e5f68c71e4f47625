"""The benchmarks, one file each: `bench/__init__.py` says what such a file holds."""
