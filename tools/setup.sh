#!/bin/sh
# Makes .venv from the committed lock, with uv when it is there, else with venv and pip.
#
# Does nothing when lock, pyproject, Python and place are those of the last complete run, so every goal may depend on it.
# Whatever was left half done is mended: the stamp is written last.
set -eu
lock=requirements-dev.lock
stamp=.venv/.setup-stamp

fail() { echo "make setup: $*" >&2; exit 1; }

[ "$(uname -s)" = Linux ] || fail "Holdfast runs on Linux; this is $(uname -s)."

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

choose_python() {
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if command -v "$name" >/dev/null && new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    found=$("${PYTHON:-python3}" -V 2>&1) || found="no ${PYTHON:-python3}"
    fail "Python 3.11 or newer is needed, and here is $found; install one, or name it: make setup PYTHON=/path/to/python3.11"
}

# A moved clone has scripts that point to the old place, so the place is part of what was set up.
wanted_stamp() {
    echo "$PWD"
    cat "$lock" pyproject.toml tools/setup.sh | sha256sum
}

done_before() { [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$(wanted_stamp)" ]; }

usable_venv() { [ -x .venv/bin/python ] && new_enough .venv/bin/python && grep -qsF "$PWD/.venv" .venv/bin/activate; }

with_uv() {
    { usable_venv || uv venv --quiet --clear --python "$python" .venv; } &&
        uv pip install ${quiet} --python .venv/bin/python --require-hashes --requirement "$lock" &&
        uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
}

pip() { env PIP_USER=0 PYTHONUNBUFFERED=1 .venv/bin/python -m pip --disable-pip-version-check --no-input "$@"; }

# What pip says, as one line that counts; what goes wrong stays readable.
counted() {
    wanted=$(grep -c '==' "$lock") count=0 goes_wrong=
    while IFS= read -r line; do
        case $line in
            Collecting*) count=$((count + 1)) && printf '\r\033[Kmake setup: package %s of %s' "$count" "$wanted";;
            Installing*) printf '\r\033[Kmake setup: installing %s packages' "$wanted";;
            ERROR*) goes_wrong=yes;;
        esac
        [ -z "$goes_wrong" ] || printf '\r\033[K%s\n' "$line"
    done
    printf '\r\033[K'
}

install_packages() {
    if [ -n "$quiet" ]; then
        pip -qq install --require-hashes --requirement "$lock"
        return
    fi
    rm -f build/setup.done
    { pip install --require-hashes --requirement "$lock" 2>&1 && touch build/setup.done; } | counted >&2
    [ -e build/setup.done ]
}

with_pip() {
    { usable_venv && pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv; } &&
        install_packages &&
        pip -qq install --no-deps --no-build-isolation --editable .
}

mkdir -p build
! done_before || exit 0
# Two makes in one clone take turns.
if command -v flock >/dev/null; then
    exec 9>build/setup.lock
    flock 9
    ! done_before || exit 0
fi
python=$(choose_python)
if [ ! -d "${HOME:-}" ] || [ ! -w "${HOME:-}" ]; then
    export PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1
fi
if command -v uv >/dev/null; then
    install=with_uv
else
    install=with_pip
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "the venv module of $python is incomplete; on Debian: apt-get install python3-venv"
fi
# On a terminal it shows how far it is: on a slow line or machine the packages take minutes.
quiet=--quiet
[ ! -t 2 ] || quiet=
echo "make setup: .venv with $("$python" -V)" >&2
"$install" || fail "the packages of $lock could not be installed (see above)."
wanted_stamp >"$stamp"
