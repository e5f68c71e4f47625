#!/bin/sh
# Renews the locks. requirements.lock is what a server needs (base, server and api), requirements-base.lock what agents and
# balancers need, without SQL and web framework, requirements-dev.lock all of that plus what developing needs, at the same
# versions. One lock serves every CPython from 3.11 on, on Linux, on x86_64 and aarch64.
# requirements-openstack.lock is what `make test-openstack` installs: one Neutron with a web server, and Holdfast's needs.
#
# Hashes are those of the public index. No index address gets in: who installs decides where packages come from.
# Without arguments versions stay where they can; `make lock ARGS=--upgrade` takes the newest.
set -eu
uv_version=0.13.7

uv=$(command -v uv) || {
    uv=.tools/uv/bin/uv
    [ -x "$uv" ] || {
        python3 -m venv .tools/uv
        .tools/uv/bin/python -m pip -qq --disable-pip-version-check install "uv==$uv_version"
    }
}

# 3.11 means 3.11.0: a stock Debian 12 has 3.11.2, and some packages want a later patch release.
compile() {
    output=$1
    shift
    "$uv" pip compile --quiet --no-config --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
        --no-header --no-annotate --no-emit-package colorama --output-file "$output" pyproject.toml "$@"
}

compile requirements.lock --extra server --extra api "$@"
compile requirements-base.lock --extra vpp --constraint requirements.lock "$@"
compile requirements-dev.lock --extra server --extra api --extra vpp --extra dev --constraint requirements.lock "$@"
printf 'neutron==29.0.0\npyuwsgi\n' >build/openstack.in
compile requirements-openstack.lock build/openstack.in --extra server --extra openstack --constraint requirements.lock "$@"
git diff --stat -- requirements.lock requirements-base.lock requirements-dev.lock requirements-openstack.lock 2>/dev/null || true
