#!/bin/sh
# Runs the tests that need a real Neutron: its own environment from requirements-openstack.lock in build/openstack,
# MariaDB from Debian's package (as root installed, otherwise unpacked into .tools), etcd, and this tree's own wheel.
#
# Where the packages cannot be had it says why and succeeds without running anything: CI goes on elsewhere. A lock that
# is wrong is no such reason.
set -eu
lock=requirements-openstack.lock
venv=build/openstack/venv
stamp=$venv/.stamp
unavailable='No matching distribution found|Max retries exceeded|Connection|timed out'

skip() { echo "make test-openstack: skipped: $*" >&2; exit 0; }
say() { echo "make test-openstack: $*" >&2; }

mariadbd=$(.venv/bin/python tools/find_mariadb.py) || skip "no MariaDB (see above)"
etcd=$(.venv/bin/python tools/find_etcd.py --dependable) || skip "no etcd (see above)"

wanted() { echo "$PWD"; sha256sum "$lock"; }
if [ "$(cat "$stamp" 2>/dev/null)" != "$(wanted)" ]; then
    say "installing Neutron into $venv"
    mkdir -p build/openstack
    if [ ! -d "${HOME:-}" ] || [ ! -w "${HOME:-}" ]; then
        export PIP_NO_CACHE_DIR=1
    fi
    .venv/bin/python -m venv --clear "$venv"
    # Without --no-deps pip resolves what packages ask for beside the lock, such as SQLAlchemy[asyncio], and refuses the
    # lock as soon as there is a newer release.
    log=build/openstack/install.log
    "$venv/bin/python" -m pip -qq --disable-pip-version-check --no-input install --no-deps --require-hashes \
        --requirement "$lock" 2>"$log" || {
        cat "$log" >&2
        grep -Eq "$unavailable" "$log" && skip "the packages of $lock cannot be had (see above)"
        say "$lock cannot be installed (see above); renew it with make lock"
        exit 1
    }
    "$venv/bin/python" -m pip --disable-pip-version-check check >"$log" || {
        cat "$log" >&2
        exit 1
    }
    wanted >"$stamp"
fi

# The wheel that ships, built from this tree: entry points are part of what is tested.
rm -rf build/openstack/dist
.venv/bin/python -m hatchling build -t wheel -d build/openstack/dist >build/openstack/wheel.log 2>&1 || {
    cat build/openstack/wheel.log >&2
    exit 1
}
"$venv/bin/python" -m pip -qq --disable-pip-version-check --no-input install --no-deps --force-reinstall build/openstack/dist/*.whl

tests=tests/openstack/neutron
for word; do
    [ ! -e "${word%%::*}" ] || tests= # files and tests are named: not all of them
done
PATH="${etcd%/*}:$PATH" TEST_MARIADBD="$mariadbd" TEST_OPENSTACK_VENV="$PWD/$venv" \
    exec .venv/bin/python -m pytest ${tests:+"$tests"} "$@"
