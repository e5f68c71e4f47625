#!/bin/sh
# As root on a Debian family: installs the system packages that tests need. Anyone else: installs nothing and says so.
#
# Nothing that is installed here starts: services are refused while this runs, and PostgreSQL makes no cluster of its own.
# What was put in place for that is taken away again, however this ends.
set -eu
packages="bird2 chromium chromium-driver conntrack dbus etcd-client etcd-server ethtool frr gnupg haproxy iproute2"
packages="$packages mariadb-server-core nftables nginx openssh-server postgresql procps prometheus systemd wrk"

say() { echo "make system-deps: $*" >&2; }

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || {
    say "not a Debian family, nothing is installed; tests that need one of $packages are skipped where it is missing."
    exit 0
}
# The Python that will make .venv; another one than Debian's has its own venv.
if [ "$(command -v "${PYTHON:-python3}")" = /usr/bin/python3 ]; then
    packages="$packages python3-venv"
fi

missing() {
    for package in $packages; do
        case $(dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null) in
        ?i*) ;;
        *) echo "$package" ;;
        esac
    done | tr '\n' ' '
}

wanted=$(missing)
[ -n "$wanted" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    say "not root, nothing is installed; missing here: $wanted"
    exit 0
fi

exec 9>/run/holdfast-system-deps.lock
flock 9
policy=/usr/sbin/policy-rc.d
kept=$policy.before-holdfast
cluster=/etc/postgresql-common/createcluster.d/holdfast.conf

tidy() {
    rm -f "$cluster" "$policy" "${log:-}"
    [ ! -e "$kept" ] || mv "$kept" "$policy"
}
trap tidy EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# A run that was killed has left its own policy behind and the machine's beside it: then that one is kept.
[ -e "$kept" ] || [ ! -e "$policy" ] || mv "$policy" "$kept"
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"
case " $wanted" in *" postgresql "*)
    mkdir -p "${cluster%/*}"
    echo 'create_main_cluster = false' >"$cluster"
    ;;
esac

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
install() {
    # shellcheck disable=SC2086 # a list of words
    apt-get -o DPkg::Lock::Timeout=120 install -qq -y --no-install-recommends $wanted </dev/null >"$log" 2>&1
}

say "installing $wanted"
install || { apt-get -qq update >"$log" 2>&1 && install; } || {
    cat "$log" >&2
    say "apt-get could not install $wanted(see above); mend that, or run the tests without: .venv/bin/pytest"
    exit 1
}
