#!/bin/sh
# What is shipped, in dist/ (or $DIST): the wheel, the locks, a list of parts (SBOM) for each lock, Debian packages where
# dpkg-deb is there, SHA256SUMS of all of them, and its signature if SIGN names a key: make dist SIGN=releases@example.net
#
# Two builds of one commit by the same tools give the same bytes: every time in them is that of the commit.
set -eu
dist=${DIST:-dist}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 315532800)
export SOURCE_DATE_EPOCH
umask 022
rm -rf "$dist"
mkdir -p "$dist"

.venv/bin/hatchling build --target wheel --directory "$dist" >&2
wheel=$(basename "$dist"/*.whl)
release=${wheel%%-py3*}
cp requirements.lock "$dist/$release.requirements.lock"
cp requirements-base.lock "$dist/$release.requirements-base.lock"
.venv/bin/python tools/sbom.py requirements.lock >"$dist/$release.cdx.json"
.venv/bin/python tools/sbom.py requirements-base.lock >"$dist/$release-base.cdx.json"

if command -v dpkg-deb >/dev/null; then
    sh tools/deb.sh "$dist" "$wheel"
else
    echo "make dist: no dpkg-deb here, so no Debian packages are built" >&2
fi

cd "$dist"
sha256sum -- * >.sums
mv .sums SHA256SUMS
[ -z "${SIGN:-}" ] || gpg --batch --yes --local-user "$SIGN" --armor --detach-sign SHA256SUMS
ls
