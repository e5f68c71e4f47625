#!/bin/sh
# deb.sh FOLDER WHEEL: builds two Debian packages into the folder, from the wheel in it and the locks.
#
#   holdfast          /opt/holdfast with the base lock (no SQL, no web framework), the command, agent and balancer
#   holdfast-server   what the server needs beside that, in the same /opt/holdfast
#
# Each is the files of a venv for Debian's own Python of the version that builds them, byte-compiled here, so that nothing
# is compiled or downloaded where it is installed.
set -eu
dist=$1 wheel=$1/$2
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
python=.venv/bin/python
minor=$($python -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
next=$($python -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1] + 1}")')
version=$($python -c 'import holdfast; print(holdfast.__version__.replace(".dev", "~dev").replace("rc", "~rc"))')
arch=$(dpkg --print-architecture)
site=opt/holdfast/lib/python$minor/site-packages

fill() { # PACKAGE ARGUMENT...: puts what pip is given into the package
    target=$build/$1/$site
    shift
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$python" --target "$target" --no-deps --only-binary :all: "$@"
    else
        env PIP_USER=0 $python -m pip -qq --disable-pip-version-check --no-input install --target "$target" --no-deps \
            --only-binary :all: --no-compile --no-warn-script-location "$@"
    fi
    # Scripts of dependencies are nobody's business here, and what an installer notes would differ from build to build.
    rm -rf "$target/bin" "$target/share" "$target/.lock"
    find "$target" \( -name direct_url.json -o -name uv_cache.json -o -name REQUESTED -o -name __pycache__ \) -prune -exec rm -rf {} +
}

compile() { # PACKAGE: unchecked, because dpkg puts a file in place with its own time
    $python -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$build/$1" -p / "$build/$1/$site" >&2
}

put() { # PACKAGE MODE SOURCE PLACE
    install -D -m "$2" "$3" "$build/$1/$4"
}

pack() { # PACKAGE
    size=$(du -sk --apparent-size "$build/$1" | cut -f1)
    mkdir -p "$build/$1/DEBIAN"
    sed -e "s/@VERSION@/$version/g; s/@ARCH@/$arch/; s/@SIZE@/$size/; s/@PYTHON@/$minor/g; s/@NEXT@/$next/" \
        "deploy/debian/$1.control" >"$build/$1/DEBIAN/control"
    for script in postinst prerm postrm; do
        [ ! -e "deploy/debian/$1.$script" ] || install -m 755 "deploy/debian/$1.$script" "$build/$1/DEBIAN/$script"
    done
    (cd "$build/$1" && find etc -type f 2>/dev/null | sed 's,^,/,' >DEBIAN/conffiles)
    find "$build/$1" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zgzip -z6 --build "$build/$1" "$dist/${1}_${version}_$arch.deb" >&2
}

documents() { # PACKAGE SBOM
    put "$1" 644 LICENSE "usr/share/doc/$1/copyright"
    put "$1" 644 CHANGELOG.md "usr/share/doc/$1/CHANGELOG.md"
    put "$1" 644 "$2" "usr/share/doc/$1/sbom.cdx.json"
}

release=${2%%-py3*}
fill holdfast --require-hashes -r requirements-base.lock
fill holdfast "$wheel"
compile holdfast
mkdir -p "$build/holdfast/opt/holdfast/bin" "$build/holdfast/usr/bin"
ln -s "/usr/bin/python$minor" "$build/holdfast/opt/holdfast/bin/python3"
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' >"$build/holdfast/opt/holdfast/pyvenv.cfg"
put holdfast 755 deploy/debian/holdfast.py opt/holdfast/bin/holdfast
ln -s /opt/holdfast/bin/holdfast "$build/holdfast/usr/bin/holdfast"
$python -m holdfast.config.output.sample >"$build/holdfast.yaml"
put holdfast 644 "$build/holdfast.yaml" etc/holdfast/holdfast.yaml
put holdfast 644 deploy/systemd/holdfast.sysusers usr/lib/sysusers.d/holdfast.conf
for role in agent balancer; do
    put holdfast 644 "deploy/systemd/holdfast-$role.service" "lib/systemd/system/holdfast-$role.service"
done
for example in deploy/examples/*; do
    put holdfast 644 "$example" "usr/share/doc/holdfast/examples/${example##*/}"
done
put holdfast 644 deploy/alerts/holdfast.rules.yaml usr/share/holdfast/alerts/holdfast.rules.yaml
documents holdfast "$dist/$release-base.cdx.json"
pack holdfast

$python tools/sbom.py --only-in requirements.lock requirements-base.lock >"$build/server.lock"
fill holdfast-server --require-hashes -r "$build/server.lock"
compile holdfast-server
put holdfast-server 644 deploy/systemd/holdfast-server.service lib/systemd/system/holdfast-server.service
documents holdfast-server "$dist/$release.cdx.json"
pack holdfast-server
