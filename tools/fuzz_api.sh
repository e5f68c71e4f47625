#!/bin/sh
# Fuzzes the HTTP API from its own OpenAPI document, with schemathesis in an environment of its own.
set -eu
[ -x .tools/fuzz/bin/st ] || {
    .venv/bin/python -m venv --clear .tools/fuzz
    .tools/fuzz/bin/python -m pip -qq --disable-pip-version-check install 'schemathesis>=4,<5'
}
exec .venv/bin/python -m pytest -q tests/api/test_fuzz.py "$@"
