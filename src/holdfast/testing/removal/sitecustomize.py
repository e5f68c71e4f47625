"""Loaded by Python itself at the start of a process that a `@fault` test started with a protection replaced."""

import os

if "FAULT_TEST_REMOVES" in os.environ:
    from holdfast.testing.protection import decode_removal, replacement

    replacement(decode_removal(os.environ["FAULT_TEST_REMOVES"])).start()
