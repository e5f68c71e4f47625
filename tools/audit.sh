#!/bin/sh
# Looks up known vulnerabilities of what the locks pin, with pip-audit in an environment of its own.
#
# Exit codes: 0 none are known, 1 some are, 3 nobody could be asked. AUDIT_SERVICE=osv asks another database than PyPI's.
set -eu
[ -x .tools/audit/bin/pip-audit ] || {
    .venv/bin/python -m venv --clear .tools/audit
    .tools/audit/bin/python -m pip -qq --disable-pip-version-check install pip-audit
}
answer=build/audit.txt
for lock in requirements-base.lock requirements.lock requirements-dev.lock; do
    code=0
    .tools/audit/bin/pip-audit --vulnerability-service "${AUDIT_SERVICE:-pypi}" --disable-pip --require-hashes \
        --progress-spinner off --requirement "$lock" >"$answer" 2>&1 || code=$?
    if grep -q 'could not be audited' "$answer" || ! grep -qE '^(No known|Found )' "$answer"; then
        { grep -iE 'could not be audited|error' "$answer" || cat "$answer"; } | tail -n 3 >&2
        echo "make audit: the database of vulnerabilities does not know all of $lock (above), so nothing is said about it" >&2
        exit 3
    fi
    echo "$lock:"
    cat "$answer"
    [ "$code" = 0 ] || exit 1
done
