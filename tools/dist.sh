#!/bin/sh
# What is shipped, in dist/: the wheel, and the lock of everything that it runs on.
set -eu
rm -rf dist
.venv/bin/hatchling build --target wheel >&2
wheel=$(basename dist/*.whl)
cp requirements.lock "dist/${wheel%%-py3*}.requirements.lock"
ls dist
